-- The record of a key: created, expires, revoked, scheme, digest, seal, and what never changes, each
-- but the last without spaces. Empty: it never expires, it is not revoked, it has no seal.
local RECORD = '^(%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (.*)$'
local KEY = 'key '

local function whole_number(number)
  return string.format('%.0f', number)
end

-- Keep a new key. ARGV from that place on: its id, when it expires or empty, scheme, digest, seal,
-- what never changes. KEYS: the organization, its live keys.
local function add_key(now, at)
  local id, expires, scheme, digest, seal, fixed = unpack(ARGV, at, at + 5)
  local created = whole_number(now - now % 1000)
  local record = table.concat({ created, expires, '', scheme, digest, seal, fixed }, ' ')
  redis.call('HSET', KEYS[1], KEY .. id, record)
  redis.call('ZADD', KEYS[2], expires == '' and '+inf' or expires, id)
  return record
end

-- Revoke a key for good, and give its record; nothing if there is none.
local function revoke_key(id, now)
  local record = redis.call('HGET', KEYS[1], KEY .. id)
  if not record then
    return nil
  end
  local created, expires, revoked, rest = string.match(record, '^(%S*) (%S*) (%S*) (.*)$')
  if revoked == '' then
    record = table.concat({ created, expires, whole_number(now), rest }, ' ')
    redis.call('HSET', KEYS[1], KEY .. id, record)
    redis.call('ZREM', KEYS[2], id)
  end
  return record
end
