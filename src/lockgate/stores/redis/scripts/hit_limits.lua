-- Charge named limits alone, or read them.
--
-- KEYS: the named limits. ARGV: the windows of the named limits, packed, and their fields; then "1" to
-- charge them; then the request, without windows.
--
-- Returns the verdict, the instant, and what the named limits tell.

local limits, plan, at = KEYS[1], ARGV[#ARGV], 1
-- Sets now, cost, expires_at, mark, id and since; call, read, write and cut are short names.
-- include: request.lua

-- Sets barred, keep_all and told.
-- include: limits.lua

local is_hit = ARGV[#ARGV - 1] == '1'
if is_hit then
  keep_all(not barred)
end
return write('<Bi8', barred and 2 or 1, now) .. told(is_hit and not barred)
