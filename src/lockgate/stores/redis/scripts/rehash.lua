-- KEYS: the organization. ARGV: the name of the key's record; the scheme, digest and seal that it must
-- have; those that it gets.
local record = redis.call('HGET', KEYS[1], ARGV[1])
if not record then
  return 0
end
local created, expires, revoked, scheme, digest, seal, rest = string.match(record, RECORD)
if scheme ~= ARGV[2] or digest ~= ARGV[3] or seal ~= ARGV[4] then
  return 0
end
record = table.concat({ created, expires, revoked, ARGV[5], ARGV[6], ARGV[7], rest }, ' ')
redis.call('HSET', KEYS[1], ARGV[1], record)
return 1
