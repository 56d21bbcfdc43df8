-- KEYS as add_key has them. ARGV: now, the key's id.
local record = revoke_key(ARGV[2], instant(ARGV[1]))
return record and { record, redis.call('HGET', KEYS[1], 'use ' .. ARGV[2]) } or false
