-- The records and indexes of API keys.
--
-- A record: created, expires, revoked, scheme, digest, seal, and the fields that no script reads, each
-- but the last without spaces. Empty: the key never expires, is not revoked, has no seal.
--
-- An index is a sorted set whose members all have score 0 and are an instant in 16 digits followed by
-- a key's id: the order of their bytes is the order of lists. LATEST stands for "never".
--
-- include: change_log.lua

local KEY, USAGE = 'key ', 'use '
local LATEST = 9007199254740991

-- Return the member of an index.
local function place(instant, id)
  return string.format('%016.0f', instant) .. id
end

-- Return when the key of a record expires, when it was revoked as text, and when it was created.
local function times_of(record)
  local created, expires, revoked = string.match(record, '^(%S*) (%S*) (%S*)')
  return expires == '' and LATEST or tonumber(expires), revoked, tonumber(created)
end

-- Return whether the key of a record is live.
local function is_live(record, now)
  local expiry, revoked = times_of(record)
  return revoked == '' and expiry > now
end

-- Return the number of the index of a key by its end, and its member there.
local function by_end(record, id)
  local expiry, revoked = times_of(record)
  if revoked == '' then
    return 2, place(expiry, id)
  end
  return 4, place(math.min(expiry, tonumber(revoked)), id)
end

-- Write the record of a key, and move the key in the indexes; false removes it.
-- KEYS: the organization, and the indexes of its unrevoked keys by expiry, of all keys by creation,
-- newest first, and of revoked keys by their end; or the organization alone, where the caller moves the
-- key in the indexes.
local function write_key(id, old, new)
  if new then
    redis.call('HSET', KEYS[1], KEY .. id, new)
  else
    redis.call('HDEL', KEYS[1], KEY .. id, USAGE .. id)
  end
  if #KEYS < 4 then
    return
  end
  if old then
    local index, member = by_end(old, id)
    redis.call('ZREM', KEYS[index], member)
  end
  local _, _, created = times_of(new or old)
  if new then
    local index, member = by_end(new, id)
    redis.call('ZADD', KEYS[index], 0, member)
    redis.call('ZADD', KEYS[3], 0, place(LATEST - created, id))
  else
    redis.call('ZREM', KEYS[3], place(LATEST - created, id))
  end
end
