// SPDX-License-Identifier: BSL-1.0
// A command for each setting, made from the rows of the table of settings (kernel/policy_rows.hpp).
#include "kernel/panic.hpp"
#include "kernel/policy.hpp"
#include "observe/built_in.hpp"
#include "observe/server.hpp"

namespace neap::observe {
namespace {

task<std::string> change_setting(Server& server, const policy::Row& row, std::string_view value, unsigned core) {
  const AsyncMutex::Lock lock = co_await server.change_mutex().lock();
  const auto applied = co_await policy::set(row.setting, std::string(value), core);
  if (!applied) co_return "error: " + applied.error().why;
  Fields fields(" ");
  fields.number("generation", applied->generation);
  fields.text("cores", applied->cores);
  const std::string granted = applied->granted.empty() ? std::string() : " granted=" + applied->granted;
  const std::string also = applied->also.empty() ? std::string() : ' ' + applied->also;
  const std::string lost = applied->lost_frames ? " lost=" + std::to_string(*applied->lost_frames) : std::string();
  co_return "ok " + applied->value + also + granted + lost + ' ' + fields.all();
}

}  // namespace

void Server::add_setting_commands() {
  for (const policy::Row* const row : policy::rows()) {
    const Result<void> added = add_command(policy::usage(*row), policy::help(*row),
                                           [this, row](std::span<const std::string_view> words, std::optional<unsigned> core) {
                                             return change_setting(*this, *row, words[0], core.value_or(policy::all_cores));
                                           });
    require(added.has_value(), "there is no room for a setting's command, or its name is taken", static_cast<unsigned>(row->setting));
  }
}

std::vector<Alias> aliases() {
  std::vector<Alias> all;
  for (const policy::Row* const row : policy::rows()) {
    for (const policy::OtherName& other : row->other_names) {
      all.push_back({.name = other.name, .stands_for = row->name, .value = other.convert, .accepts = other.accepts});
    }
  }
  all.push_back({.name = "print", .stands_for = "status"});
  return all;
}

}  // namespace neap::observe
