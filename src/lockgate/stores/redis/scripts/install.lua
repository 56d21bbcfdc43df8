-- KEYS: the organization. ARGV: the fence that must stand, the name of the key's record, that of its
-- usage, the record, requests and the last of them, where the organization was placed or empty.
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
local requests, last = tonumber(ARGV[5]), tonumber(ARGV[6])
local usage = redis.call('HGET', KEYS[1], ARGV[3])
if usage then -- Requests that were counted here may not have got there yet.
  local more, later = struct.unpack('<i8i8', usage)
  requests, last = math.max(requests, more), math.max(last, later)
end
redis.call('HSET', KEYS[1], ARGV[3], struct.pack('<i8i8', requests, last))
if ARGV[7] == '' then
  redis.call('HDEL', KEYS[1], 'plan')
else
  redis.call('HSET', KEYS[1], 'plan', ARGV[7])
end
return 1
