-- KEYS as add_key has them. ARGV: ids of keys that ended. Gives how many of them were here.
local removed = 0
for _, id in ipairs(ARGV) do
  local record = redis.call('HGET', KEYS[1], KEY .. id)
  if record then
    local created, expires, revoked = string.match(record, RECORD)
    local expiry = expires == '' and LATEST or tonumber(expires)
    redis.call('HDEL', KEYS[1], KEY .. id, 'use ' .. id)
    redis.call('ZREM', KEYS[2], place(expiry, id))
    redis.call('ZREM', KEYS[3], place(LATEST - tonumber(created), id))
    if revoked ~= '' then
      redis.call('ZREM', KEYS[4], place(math.min(expiry, tonumber(revoked)), id))
    end
    removed = removed + 1
  end
end
return removed
