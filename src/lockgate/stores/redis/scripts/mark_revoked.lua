-- KEYS: the organization. ARGV: now, the key's id.
local record = mark_revoked(ARGV[2], instant(ARGV[1]))
return record and { record, redis.call('HGET', KEYS[1], 'use ' .. ARGV[2]) } or false
