-- KEYS: the leases, their deadlines. ARGV: now, job, owner, span.
local now = instant(ARGV[1])
settle(now)
local job = ARGV[2]
local deadline = redis.call('ZSCORE', KEYS[2], job)
if not deadline then
  return false
end
local number, _, owner = unpack(lease_of(job, deadline))
if owner ~= ARGV[3] then
  return false
end
grant(job, number, owner, now, tonumber(ARGV[4]))
return lease_of(job, redis.call('ZSCORE', KEYS[2], job))
