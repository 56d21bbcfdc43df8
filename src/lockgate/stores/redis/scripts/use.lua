-- KEYS: the organization. ARGV: the name of a key's record, that of its usage, requests to add, when the
-- last of them was. Gives the usage; nothing if there is no such key.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return false
end
local requests, last = 0, 0
local usage = redis.call('HGET', KEYS[1], ARGV[2])
if usage then
  requests, last = struct.unpack('<i8i8', usage)
end
requests, last = requests + tonumber(ARGV[3]), math.max(last, tonumber(ARGV[4]))
usage = struct.pack('<i8i8', requests, last)
redis.call('HSET', KEYS[1], ARGV[2], usage)
return usage
