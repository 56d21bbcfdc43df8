-- KEYS: the organization. ARGV: a new fence, milliseconds that copies last.
local fence = redis.call('HGET', KEYS[1], 'fence')
if fence then
  return fence
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return ARGV[1]
