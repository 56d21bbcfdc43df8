-- Admit a request by an API key, in one step: check the key hint, charge all windows, count the usage.
--
-- KEYS: the organization, its windows; its named limits if some are charged.
-- ARGV: the key hint, which is the field of the key's record, that of its usage, the record, and the
-- plan assignment or an empty string; then what charge.lua takes.
--
-- Returns, for an admitted or limited request, the verdict with the reading, the key's usage, and what
-- charge.lua tells; for an expired key, or a plan with a limit that has ended, the verdict, the instant and
-- the usage. Where the hint differs from the record, charges nothing and returns the fresh record, usage
-- and plan assignment: so a revocation and a change of plan hold from this call on.
-- Returns nil if the request was sent before and may have been charged then (D33).

local NO_USAGE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local KEYS, ARGV = KEYS, ARGV -- Reading a global takes longer.
local windows, limits, at = KEYS[2], KEYS[3], 5

-- include: request.lua

local hinted = call('HMGET', KEYS[1], ARGV[1], ARGV[2], 'plan')
local usage = hinted[2]
if hinted[1] ~= ARGV[3] or (hinted[3] or '') ~= ARGV[4] then
  return hinted
end
if expires_at <= now then
  return write('<Bi8', EXPIRED, now) .. (usage or NO_USAGE)
end

-- include: charge.lua

if charged then
  local requests, latest = 0, now
  if usage then
    requests, latest = read('<i8i8', usage)
    if latest < now then
      latest = now
    end
  end
  usage = write('<i8i8', requests + 1, latest)
  call('HSET', KEYS[1], ARGV[2], usage)
end
return reading .. heads .. (usage or NO_USAGE) .. told
