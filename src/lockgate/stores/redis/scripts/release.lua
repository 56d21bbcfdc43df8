-- KEYS: the leases, their deadlines. ARGV: now, job, owner.
settle(instant(ARGV[1]))
local job = ARGV[2]
local deadline = redis.call('ZSCORE', KEYS[2], job)
if not deadline or lease_of(job, deadline)[3] ~= ARGV[3] then
  return 0
end
redis.call('ZREM', KEYS[2], job)
redis.call('HDEL', KEYS[1], 'job ' .. job)
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
end
return 1
