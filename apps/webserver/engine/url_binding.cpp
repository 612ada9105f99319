// SPDX-License-Identifier: BSL-1.0
// internalBinding('url'): the URL Standard's parser, by Ada. The class URL is a script (library/internal/url.js).
//
// A parsed URL is one string, its href, with the offsets of its parts. The script keeps both; a setter parses the href again, because
// setters are rare.
#include <ada.h>

#include <array>
#include <new>
#include <string>
#include <string_view>

#include "apps/webserver/engine/engine_state.hpp"

namespace neap::webserver {

namespace {

JSValueConst argument(int count, JSValueConst* arguments, int index) noexcept { return index < count ? arguments[index] : JS_UNDEFINED; }

/// The parts in the order in which internal/url.js reads them.
JSValue parts_of(JSContext* context, const ada::url_aggregator& url) {
  const std::string origin = url.get_origin();
  const std::array<std::string_view, 11> texts = {url.get_href(),     origin,           url.get_protocol(), url.get_username(),
                                                  url.get_password(), url.get_host(),   url.get_hostname(), url.get_port(),
                                                  url.get_pathname(), url.get_search(), url.get_hash()};
  JSValue values[texts.size()];
  for (std::size_t index = 0; index < texts.size(); ++index) values[index] = new_utf8(context, texts[index]);
  return JS_NewArrayFrom(context, static_cast<int>(texts.size()), values);
}

/// Ada's strings may be as long as a script's. Their lack of memory is an error of the script.
template <typename Work>
JSValue with_memory(JSContext* context, Work work) noexcept {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return JS_ThrowOutOfMemory(context);
  }
}

/// parse(input, base | undefined) -> [href, origin, protocol, username, password, host, hostname, port, pathname, search, hash] or
/// undefined
JSValue parse(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  return with_memory(context, [&] {
    const Utf8View input(context, argument(count, arguments, 0));
    if (!input) return JS_EXCEPTION;
    if (JS_IsUndefined(argument(count, arguments, 1))) {
      const auto url = ada::parse<ada::url_aggregator>(*input);
      return url ? parts_of(context, *url) : JS_UNDEFINED;
    }
    const Utf8View base_text(context, arguments[1]);
    if (!base_text) return JS_EXCEPTION;
    const auto base = ada::parse<ada::url_aggregator>(*base_text);
    if (!base) return JS_UNDEFINED;
    const auto url = ada::parse<ada::url_aggregator>(*input, &*base);
    return url ? parts_of(context, *url) : JS_UNDEFINED;
  });
}

/// canParse(input, base | undefined) -> boolean
JSValue can_parse(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  return with_memory(context, [&] {
    const Utf8View input(context, argument(count, arguments, 0));
    if (!input) return JS_EXCEPTION;
    if (JS_IsUndefined(argument(count, arguments, 1))) return JS_NewBool(context, ada::can_parse(*input));
    const Utf8View base(context, arguments[1]);
    if (!base) return JS_EXCEPTION;
    const std::string_view base_text = *base;
    return JS_NewBool(context, ada::can_parse(*input, &base_text));
  });
}

/// set(href, part, value) -> the parts, or undefined if the value is refused. `part`: the index of the part in the list above.
JSValue set(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  return with_memory(context, [&] {
    const Utf8View href(context, argument(count, arguments, 0));
    if (!href) return JS_EXCEPTION;
    std::int32_t part = 0;
    if (JS_ToInt32(context, &part, argument(count, arguments, 1)) != 0) return JS_EXCEPTION;
    const Utf8View value(context, argument(count, arguments, 2));
    if (!value) return JS_EXCEPTION;
    auto url = ada::parse<ada::url_aggregator>(*href);
    if (!url) return JS_UNDEFINED;
    bool accepted = true;
    switch (part) {
      case 0:
        accepted = url->set_href(*value);
        break;
      case 2:
        accepted = url->set_protocol(*value);
        break;
      case 3:
        accepted = url->set_username(*value);
        break;
      case 4:
        accepted = url->set_password(*value);
        break;
      case 5:
        accepted = url->set_host(*value);
        break;
      case 6:
        accepted = url->set_hostname(*value);
        break;
      case 7:
        accepted = url->set_port(*value);
        break;
      case 8:
        accepted = url->set_pathname(*value);
        break;
      case 9:
        url->set_search(*value);
        break;
      case 10:
        url->set_hash(*value);
        break;
      default:
        accepted = false;
    }
    return accepted ? parts_of(context, *url) : JS_UNDEFINED;
  });
}

/// domainToASCII(domain), domainToUnicode(domain) -> string, empty if the domain is invalid
JSValue domain_to(JSContext* context, JSValueConst, int count, JSValueConst* arguments, int unicode) {
  return with_memory(context, [&] {
    const Utf8View domain(context, argument(count, arguments, 0));
    if (!domain) return JS_EXCEPTION;
    auto url = ada::parse<ada::url_aggregator>("ws://x");
    if (!url || !url->set_hostname(*domain)) return new_latin1(context, {});
    const std::string_view host = url->get_hostname();
    return unicode != 0 ? new_utf8(context, ada::idna::to_unicode(host)) : new_utf8(context, host);
  });
}

const JSCFunctionListEntry url_functions[] = {
    JS_CFUNC_DEF("parse", 2, parse),
    JS_CFUNC_DEF("canParse", 2, can_parse),
    JS_CFUNC_DEF("set", 3, set),
    JS_CFUNC_MAGIC_DEF("domainToASCII", 1, domain_to, 0),
    JS_CFUNC_MAGIC_DEF("domainToUnicode", 1, domain_to, 1),
};

}  // namespace

bool fill_url_binding(Engine& engine, JSValueConst target) {
  return JS_SetPropertyFunctionList(engine.context(), target, url_functions, std::size(url_functions)) == 0;
}

}  // namespace neap::webserver
