-- The verbs of API keys: a script calls one of these functions.
--
-- "KEYS of an organization" are those of add_key in key_records.lua. The last of ARGV of a function that
-- changes a key is the text for the change log, or empty.
--
-- include: key_records.lua
-- include: usage_marks.lua
-- include: change.lua

-- Return why a key cannot be inserted, or nil: its id is taken, or the organization has as many live
-- keys as the cap allows, without those that are about to end.
local function why_not(now, id, cap, ending)
  if redis.call('HEXISTS', KEYS[1], KEY .. id) == 1 then
    return 'taken'
  end
  if cap ~= '' then
    local live = redis.call('ZLEXCOUNT', KEYS[2], '(' .. place(now, '\255'), '+')
    if live - ending >= tonumber(cap) then
      return 'cap'
    end
  end
end

-- Insert a key unless its id is taken or the organization has as many live keys as the cap allows.
-- KEYS of an organization. ARGV: now, the cap or empty, then the key as add_key takes it.
-- Returns the record in a list, 'taken' or 'cap'.
local function insert()
  local now = instant(ARGV[1])
  local refusal = why_not(now, ARGV[3], ARGV[2], 0)
  if refusal then
    return refusal
  end
  log_change(now, ARGV[#ARGV])
  return { add_key(now, 3) }
end

-- Return when the key of a record expires, and when it was revoked as text.
local function end_of(record)
  local _, expires, revoked = string.match(record, RECORD)
  return expires == '' and LATEST or tonumber(expires), revoked
end

-- Return whether a key is live and has the record expected.
local function is_live_as(now, id, record)
  local expiry, revoked = end_of(record)
  return revoked == '' and expiry > now and redis.call('HGET', KEYS[1], KEY .. id) == record
end

-- Replace the record of an unrevoked key.
local function replace_key(id, old, new)
  redis.call('HSET', KEYS[1], KEY .. id, new)
  redis.call('ZREM', KEYS[2], place(end_of(old), id))
  local expiry, revoked = end_of(new)
  if revoked == '' then
    redis.call('ZADD', KEYS[2], 0, place(expiry, id))
  else
    redis.call('ZADD', KEYS[4], 0, place(math.min(expiry, tonumber(revoked)), id))
  end
end

-- Replace the record of a key if it is live and has the expected one.
-- KEYS of an organization. ARGV: now, the key's id, the record expected, the record to set.
-- Returns 1 or 0.
local function update()
  local now = instant(ARGV[1])
  if not is_live_as(now, ARGV[2], ARGV[3]) then
    return 0
  end
  replace_key(ARGV[2], ARGV[3], ARGV[4])
  log_change(now, ARGV[#ARGV])
  return 1
end

-- Do what update does, and insert the key's successor.
-- KEYS of an organization. ARGV: as for update, then the cap or empty, then the successor as add_key takes
-- it. Returns as insert does, or 'changed'.
local function rotate()
  local now = instant(ARGV[1])
  if not is_live_as(now, ARGV[2], ARGV[3]) then
    return 'changed'
  end
  local expiry, revoked = end_of(ARGV[4])
  local ending = (revoked ~= '' or expiry <= now) and 1 or 0
  local refusal = why_not(now, ARGV[6], ARGV[5], ending)
  if refusal then
    return refusal
  end
  replace_key(ARGV[2], ARGV[3], ARGV[4])
  log_change(now, ARGV[#ARGV])
  return { add_key(now, 6) }
end

-- Return a record and the key's usage; false where there is no record.
local function with_usage(record, id)
  return record and { record, redis.call('HGET', KEYS[1], USAGE .. id) } or false
end

-- Revoke a key. KEYS of an organization. ARGV: now, the key's id. Returns its record and usage.
local function revoke()
  return with_usage(revoke_key(ARGV[2], instant(ARGV[1]), ARGV[#ARGV]), ARGV[2])
end

-- Revoke a key in its record only, which is what an admission reads.
-- KEYS: the organization. ARGV: now, the key's id. Returns its record and usage.
local function revoke_record()
  return with_usage((mark_revoked(ARGV[2], instant(ARGV[1]), ARGV[#ARGV])), ARGV[2])
end

-- Replace the digest of a key if it has the expected one.
-- KEYS: the organization. ARGV: the field of the key's record; scheme, digest and seal expected; scheme,
-- digest and seal to set. Returns 1 or 0.
local function rehash()
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
end

-- Add requests to the usage of keys.
-- KEYS: the organization. ARGV: the writer of the batch and its number, or two empty strings; then for each
-- key the fields of its record and usage, how many requests, and the instant of the last. Returns the usage
-- of the last key; false if none was added.
local function add_usage()
  local known = {}
  for at = 3, #ARGV, 4 do
    if redis.call('HEXISTS', KEYS[1], ARGV[at]) == 1 then
      known[#known + 1] = at + 1
    end
  end
  if #known == 0 or (ARGV[1] ~= '' and not mark(ARGV[1], ARGV[2])) then
    return false
  end
  local usage
  for _, at in ipairs(known) do
    local requests, last = 0, 0
    usage = redis.call('HGET', KEYS[1], ARGV[at])
    if usage then
      requests, last = struct.unpack('<i8i8', usage)
    end
    requests, last = requests + tonumber(ARGV[at + 1]), math.max(last, tonumber(ARGV[at + 2]))
    usage = struct.pack('<i8i8', requests, last)
    redis.call('HSET', KEYS[1], ARGV[at], usage)
  end
  return usage
end

-- Return the records and usage of keys, alternating, by members of an index.
local function read_keys(members)
  if #members == 0 then
    return {}
  end
  local fields = {}
  for at, member in ipairs(members) do
    local id = string.sub(member, 17)
    fields[2 * at - 1], fields[2 * at] = KEY .. id, USAGE .. id
  end
  return redis.call('HMGET', KEYS[1], unpack(fields))
end

-- List keys, newest first.
-- KEYS: the organization, the index of its keys by creation. ARGV: where to begin, how many.
local function list()
  return read_keys(redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], '+', 'LIMIT', 0, ARGV[2]))
end

-- List live keys, the latest expiry first.
-- KEYS: the organization, the index of its unrevoked keys. ARGV: now, where to begin, how many.
local function list_live()
  local edge = '(' .. place(instant(ARGV[1]), '\255')
  return read_keys(redis.call('ZREVRANGEBYLEX', KEYS[2], ARGV[2], edge, 'LIMIT', 0, ARGV[3]))
end

-- List keys that were revoked or expired by an instant.
-- KEYS: the organization, the indexes of its unrevoked and of its revoked keys. ARGV: the instant, how
-- many.
local function list_ended()
  local edge = '[' .. place(ARGV[1], '\255')
  local ended = redis.call('ZRANGEBYLEX', KEYS[3], '-', edge, 'LIMIT', 0, ARGV[2])
  local expired = redis.call('ZRANGEBYLEX', KEYS[2], '-', edge, 'LIMIT', 0, ARGV[2] - #ended)
  for _, member in ipairs(expired) do
    ended[#ended + 1] = member
  end
  return read_keys(ended)
end

-- Remove keys. KEYS of an organization. ARGV: their ids. Returns how many there were.
local function remove()
  local removed = 0
  for _, id in ipairs(ARGV) do
    local record = redis.call('HGET', KEYS[1], KEY .. id)
    if record then
      local created, expires, revoked = string.match(record, RECORD)
      local expiry = expires == '' and LATEST or tonumber(expires)
      redis.call('HDEL', KEYS[1], KEY .. id, USAGE .. id)
      redis.call('ZREM', KEYS[2], place(expiry, id))
      redis.call('ZREM', KEYS[3], place(LATEST - tonumber(created), id))
      if revoked ~= '' then
        redis.call('ZREM', KEYS[4], place(math.min(expiry, tonumber(revoked)), id))
      end
      removed = removed + 1
    end
  end
  return removed
end

-- Give up the claim of a handle. KEYS: the handle. ARGV: the claim that it must hold.
local function unclaim()
  if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('DEL', KEYS[1])
  end
  return 1
end
