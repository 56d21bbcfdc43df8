-- KEYS: the organization, its windows. ARGV: what the process remembers, that is the name of the
-- key's record, that of its usage, the record, when it expires or empty, where the organization was
-- placed or empty; the plan's windows, milliseconds to keep their state; now, cost, request id,
-- an instant before it was sent first or 0.
--
-- What is remembered is a hint: if anything differs, nothing is counted and the fresh values go back.
local STALE, ADMITTED, LIMITED, EXPIRED, UNKNOWN = 0, 1, 2, 3, 4

local now, cost = instant(ARGV[8]), tonumber(ARGV[9])
local kept = redis.call('HMGET', KEYS[1], ARGV[1], ARGV[2], 'plan')
local record, usage, placed = kept[1], kept[2], kept[3]
if record ~= ARGV[3] or (placed or '') ~= ARGV[5] then
  return { STALE, now, record, usage, placed }
end
local requests, last = 0, 0
if usage then
  requests, last = struct.unpack('<dd', usage)
end
if ARGV[4] ~= '' and tonumber(ARGV[4]) <= now then
  return { EXPIRED, now, struct.pack('<i8i8', requests, last) }
end
local windows, plan, life = KEYS[2], plan_of(ARGV[6]), ARGV[7]
local id, since = ARGV[10], tonumber(ARGV[11])

