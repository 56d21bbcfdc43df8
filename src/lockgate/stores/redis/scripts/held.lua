-- KEYS: the leases, their deadlines. ARGV: now.
local now = instant(ARGV[1])
local edge = math.max(now, tonumber(redis.call('HGET', KEYS[1], 'clock') or now))
local jobs = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. whole_number(edge), '+inf', 'WITHSCORES')
local leases = {}
for at = 1, #jobs, 2 do
  local lease = lease_of(jobs[at], jobs[at + 1])
  lease[4] = math.min(lease[4], now + lease[5])
  leases[#leases + 1] = lease
end
return leases
