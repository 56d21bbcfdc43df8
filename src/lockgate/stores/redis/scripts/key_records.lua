-- The records and indexes of API keys, shared by keys.lua and accounts.lua.
--
-- A record: created, expires, revoked, scheme, digest, seal, and the fields that no script reads, each
-- but the last without spaces. Empty: the key never expires, is not revoked, has no seal.
--
-- An index is a sorted set whose members all have score 0 and are an instant in 16 digits followed by
-- a key's id: the order of their bytes is the order of lists. LATEST stands for "never".
--
-- include: change_log.lua

local RECORD = '^(%S*) (%S*) (%S*) (%S*) (%S*) (%S*) (.*)$'
local KEY, USAGE = 'key ', 'use '
local LATEST = 9007199254740991

-- Return the member of an index.
local function place(instant, id)
  return string.format('%016.0f', instant) .. id
end

-- Insert a key and return its record.
-- KEYS: the organization, and the indexes of its unrevoked keys by expiry, of all keys by creation,
-- newest first, and of revoked keys by their end.
-- ARGV from first on: id, expiry or empty, scheme, digest, seal, the fields that no script reads; for a
-- key of another system when it was created, when revoked or empty, and its usage, else empty.
local function add_key(now, first)
  local id, expires, scheme, digest, seal, described, created, revoked, usage =
    unpack(ARGV, first, first + 8)
  created = created ~= '' and created or whole_number(now - now % 1000)
  local record = table.concat({ created, expires, revoked, scheme, digest, seal, described }, ' ')
  redis.call('HSET', KEYS[1], KEY .. id, record)
  if usage ~= '' then
    redis.call('HSET', KEYS[1], USAGE .. id, usage)
  end
  local expiry = expires == '' and LATEST or tonumber(expires)
  if revoked == '' then
    redis.call('ZADD', KEYS[2], 0, place(expiry, id))
  else
    redis.call('ZADD', KEYS[4], 0, place(math.min(expiry, tonumber(revoked)), id))
  end
  redis.call('ZADD', KEYS[3], 0, place(LATEST - tonumber(created), id))
  return record
end

-- Mark the record of a key as revoked, once and for good (K3), and add the text to the change log.
-- Returns the record, when the key expires and when it was revoked; nil if there is no such key.
local function mark_revoked(id, now, text)
  local record = redis.call('HGET', KEYS[1], KEY .. id)
  if not record then
    return nil
  end
  local created, expires, revoked, rest = string.match(record, '^(%S*) (%S*) (%S*) (.*)$')
  if revoked == '' then
    revoked = whole_number(now)
    record = table.concat({ created, expires, revoked, rest }, ' ')
    redis.call('HSET', KEYS[1], KEY .. id, record)
    log_change(now, text)
  end
  return record, expires == '' and LATEST or tonumber(expires), tonumber(revoked)
end

-- Revoke a key: mark its record and move it between the indexes. KEYS as for add_key.
-- Returns the record; nil if there is no such key. The indexes are repaired even where the key was
-- revoked before, since that caller may have died before it reached them.
local function revoke_key(id, now, text)
  local record, expiry, revoked = mark_revoked(id, now, text)
  if record then
    redis.call('ZREM', KEYS[2], place(expiry, id))
    redis.call('ZADD', KEYS[4], 0, place(math.min(expiry, revoked), id))
  end
  return record
end
