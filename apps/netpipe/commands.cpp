// SPDX-License-Identifier: BSL-1.0
#include "apps/netpipe/commands.hpp"

#include <limits>

#include "kernel/numbers.hpp"

namespace neap::netpipe {

namespace {

std::string joined(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view word : words) (text += word) += ' ';
  return text;
}

/// Returns the errors that `arguments` found, as one line.
std::string refusal(const Arguments& arguments) {
  std::string text = arguments.complaints();
  while (text.ends_with('\n')) text.pop_back();
  for (std::size_t end = 0; (end = text.find('\n', end)) != std::string::npos;) text.replace(end, 1, "; ");
  return "error: " + text;
}

std::string described(const Options& options) {
  const auto flag = [](bool value) { return value ? "on" : "off"; };
  return std::string("from=") + std::to_string(options.from) + "; to=" + std::to_string(options.to) +
         "; perturbation=" + std::to_string(options.perturbation) + "; repeats=" + std::to_string(options.repeats) +
         "; stream=" + flag(options.stream) + "; bidirectional=" + flag(options.bidirectional) + "; integrity=" + flag(options.integrity) +
         "; reset=" + flag(options.reset);
}

std::string results(Service& service, std::span<const std::string_view> words) {
  unsigned number = 0;
  if (!words.empty()) {
    const auto said = parse_digits(words.front(), std::numeric_limits<unsigned>::max());
    if (words.size() > 1 || !said || *said == 0) return "error: usage: netpipe,results[,RUN]";
    number = static_cast<unsigned>(*said);
  }
  const Run run = service.run(number);
  if (run.number == 0) return number == 0 ? "error: nothing was measured yet" : "error: that run is not kept";
  std::string text = "ok run=" + std::to_string(run.number) + "; role=" + (run.role == Role::transmitter ? "transmitter" : "receiver") +
                     "; peer=" + run.peer + "; state=";
  text += run.state == Session::State::finished ? "finished" : run.state == Session::State::failed ? "failed" : "running";
  if (!run.reason.empty()) text += "; reason=" + run.reason;
  for (const Measurement& point : run.points) {
    const std::string line = point.file_line();
    text += "; " + line.substr(line.find_first_not_of(' '));
  }
  return text;
}

}  // namespace

task<std::string> command(Service& service, std::span<const std::string_view> words) {
  const std::string_view what = words.empty() ? std::string_view() : words.front();
  if (!words.empty()) words = words.subspan(1);
  if (what == "results") co_return results(service, words);
  if (what == "stop" && words.empty()) {
    const bool stopping = co_await service.stop();
    co_return stopping ? "ok it ends before its next length" : "error: nothing is being measured";
  }
  if (what == "serve") {
    Arguments arguments(joined(words));
    const Options options = Options::from_words(arguments, service.serving());
    if (!arguments.complaints().empty()) co_return refusal(arguments);
    if (!words.empty()) service.set_serving(options);
    co_return "ok " + described(options);
  }
  if (what == "run") {
    Arguments arguments(joined(words));
    const ClientOptions client = client_options(arguments, Options{}, service.cores(), service.measuring_core());
    if (!arguments.complaints().empty()) co_return refusal(arguments);
    const Result<unsigned> number = service.begin(client);
    if (!number.has_value()) co_return std::string("error: ") + number.error().message;
    co_return "ok run=" + std::to_string(*number);
  }
  co_return "error: netpipe takes run, stop, results or serve: help,netpipe says more";
}

}  // namespace neap::netpipe
