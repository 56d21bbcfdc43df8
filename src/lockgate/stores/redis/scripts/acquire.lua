-- KEYS: the leases, their deadlines. ARGV: now, job, owner, the limit or empty, span.
local now = instant(ARGV[1])
settle(now)
local job = ARGV[2]
local held = redis.call('ZCARD', KEYS[2])
local deadline = redis.call('ZSCORE', KEYS[2], job)
if deadline then
  return { held, lease_of(job, deadline) }
end
if ARGV[4] ~= '' and held >= tonumber(ARGV[4]) then
  return { held }
end
local number = redis.call('HINCRBY', KEYS[1], 'next', 1)
grant(job, number, ARGV[3], now, tonumber(ARGV[5]))
return { held + 1, lease_of(job, redis.call('ZSCORE', KEYS[2], job)) }
