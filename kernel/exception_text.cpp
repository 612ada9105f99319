// SPDX-License-Identifier: BSL-1.0
#include "kernel/exception_text.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <typeinfo>

#include "kernel/console.hpp"
#include "kernel/panic.hpp"

namespace neap {
namespace {

/// The type's name as in the source. Demangling needs the heap; if that fails, the mangled name is printed.
void append_type(Line& line, const std::type_info* type) noexcept {
  if (type == nullptr) return;
  int status = -1;
  char* const name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  line << std::string_view(status == 0 ? name : type->name());
  std::free(name);
}

}  // namespace

void panic_for_exception(std::string_view what, const std::exception_ptr& exception) noexcept {
  Line line;
  line << what << ": ";
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    append_type(line, &typeid(error));
    line << ": " << error.what();
  } catch (...) {
    append_type(line, abi::__cxa_current_exception_type());
  }
  panic(line.text());
}

void install_terminate_handler() noexcept {
  std::set_terminate([] {
    if (const std::exception_ptr exception = std::current_exception()) panic_for_exception("an exception was not caught", exception);
    panic("std::terminate was called");
  });
}

}  // namespace neap
