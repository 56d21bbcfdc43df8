-- Admit a request by an API key, in one step: check the key hint, charge all windows, count the usage.
--
-- KEYS: the organization, its windows.
-- ARGV: the key hint, which is the field of the key's record, that of its usage, the record, and the
-- plan assignment or an empty string; then the windows of the plan with the request.
--
-- Returns, for an admitted or limited request, the verdict with the reading and the key's usage; for an
-- expired key, or a plan with a limit that has ended, the verdict, the instant and the usage. Where the
-- hint differs from the record, charges nothing and returns the fresh record, usage and plan assignment:
-- so a revocation and a change of plan hold from this call on.
-- Returns nil if the request was sent before and may have been charged then (D33).

local windows, plan = KEYS[2], ARGV[5]
-- Sets now, cost, expires_at, mark, id and since; call, read, write and cut are short names.
-- include: request.lua

-- Sets usage.
-- include: key_check.lua

-- Sets reading, heads and charged.
-- include: sliding_window.lua

if not reading then
  return false
end
-- include: count_usage.lua
return reading .. heads .. (usage or NO_USAGE)
