-- The record of a key: created, expires, revoked, scheme, digest, seal, and what never changes, each
-- but the last without spaces. Empty: it never expires, it is not revoked, it has no seal.
local RECORD = '^(%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (.*)$'
local KEY = 'key '

-- Indexes are sorted sets whose members, all of score 0, are an instant in 16 digits and a key's id:
-- in the order of their bytes they are in that of the lists. LATEST is the end of a key that has none.
local LATEST = 9007199254740991

local function place(instant, id)
  return string.format('%016.0f', instant) .. id
end

local function whole_number(number)
  return string.format('%.0f', number)
end

-- Keep a new key. ARGV from that place on: its id, when it expires or empty, scheme, digest, seal,
-- what never changes. KEYS: the organization, and the indexes of its unrevoked keys by expiry, of all
-- keys by creation, newest first, and of revoked keys by their end.
local function add_key(now, at)
  local id, expires, scheme, digest, seal, fixed = unpack(ARGV, at, at + 5)
  local created = whole_number(now - now % 1000)
  local record = table.concat({ created, expires, '', scheme, digest, seal, fixed }, ' ')
  redis.call('HSET', KEYS[1], KEY .. id, record)
  redis.call('ZADD', KEYS[2], 0, place(expires == '' and LATEST or tonumber(expires), id))
  redis.call('ZADD', KEYS[3], 0, place(LATEST - tonumber(created), id))
  return record
end

-- Mark the record of a key as revoked for good, and give it, when the key expires, when it was revoked;
-- nothing if there is none.
local function mark_revoked(id, now)
  local record = redis.call('HGET', KEYS[1], KEY .. id)
  if not record then
    return nil
  end
  local created, expires, revoked, rest = string.match(record, '^(%S*) (%S*) (%S*) (.*)$')
  if revoked == '' then
    revoked = whole_number(now)
    record = table.concat({ created, expires, revoked, rest }, ' ')
    redis.call('HSET', KEYS[1], KEY .. id, record)
  end
  return record, expires == '' and LATEST or tonumber(expires), tonumber(revoked)
end

-- Revoke a key for good, and give its record; nothing if there is none. The indexes are put right even
-- if it was revoked before, by a caller who did not come to them.
local function revoke_key(id, now)
  local record, expiry, revoked = mark_revoked(id, now)
  if record then
    redis.call('ZREM', KEYS[2], place(expiry, id))
    redis.call('ZADD', KEYS[4], 0, place(math.min(expiry, revoked), id))
  end
  return record
end
