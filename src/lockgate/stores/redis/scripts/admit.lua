-- Admit a request by an API key, in one step: check the key hint, charge all windows, count the usage.
--
-- KEYS: the organization, its windows.
-- ARGV: the key hint, which is the field of the key's record, that of its usage, the record, and the
-- plan assignment or an empty string; then the windows of the plan with the request.
--
-- Returns the verdict with the reading and the key's usage; of an expired key the verdict, the instant
-- and the usage. Where the hint differs from what is kept, nothing is charged and the fresh record,
-- usage and plan assignment are returned: so a revocation and a change of plan hold from this call on.
-- Returns nil if the request was sent before and may have been charged then (D33).

local EXPIRED = 3
local NO_USAGE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

local windows, plan = KEYS[2], ARGV[5]
-- Sets now, cost, expires_at, mark, id and since; call, read, write and cut are short names.
-- include: request.lua

local kept = call('HMGET', KEYS[1], ARGV[1], ARGV[2], 'plan')
local usage = kept[2]
if kept[1] ~= ARGV[3] or (kept[3] or '') ~= ARGV[4] then
  return kept
end
if expires_at <= now then
  return write('<Bi8', EXPIRED, now) .. (usage or NO_USAGE)
end

-- Sets reading, heads and charged.
-- include: sliding_window.lua

if not reading then
  return false
end
if charged then
  local requests, last = 0, now
  if usage then
    requests, last = read('<i8i8', usage)
    if last < now then
      last = now
    end
  end
  usage = write('<i8i8', requests + 1, last)
  call('HSET', KEYS[1], ARGV[2], usage)
end
return reading .. heads .. (usage or NO_USAGE)
