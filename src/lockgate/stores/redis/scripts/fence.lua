-- KEYS: the organization. ARGV: a new fence, milliseconds that copies last.
local fence = fence_of(KEYS[1])
if fence then
  return fence
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return ARGV[1]
