-- SPDX-License-Identifier: BSL-1.0
-- For wrk: checks each response's status and body, and prints one line of counts at the end.
-- Arguments after `--`: the expected body.
local threads = {}

function setup(thread)
   table.insert(threads, thread)
end

function init(args)
   expected = args[1] .. "\n"
   right, wrong, example = 0, 0, ""
end

function response(status, headers, body)
   if status == 200 and body == expected then
      right = right + 1
   else
      wrong = wrong + 1
      example = status .. " " .. string.sub(body, 1, 100)
   end
end

function done(summary)
   local rights, wrongs, shown = 0, 0, ""
   for _, thread in ipairs(threads) do
      rights = rights + thread:get("right")
      wrongs = wrongs + thread:get("wrong")
      if thread:get("wrong") > 0 then
         shown = thread:get("example")
      end
   end
   local errors = summary.errors
   io.write(string.format("checked: right=%d wrong=%d connect=%d read=%d write=%d timeout=%d status=%d %s\n",
      rights, wrongs, errors.connect, errors.read, errors.write, errors.timeout, errors.status, shown))
end
