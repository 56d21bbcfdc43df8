-- Readings of the rows of an organization: a script calls one of these functions. The first of ARGV is the
-- instant or empty, and the first of what each returns the instant of the reading.
--
-- include: key_records.lua

-- Return the instant of the reading and some fields of the hash.
-- KEYS: the organization. ARGV: the instant, the fields.
local function fields()
  local found = redis.call('HMGET', KEYS[1], unpack(ARGV, 2))
  table.insert(found, 1, whole_number(instant(ARGV[1])))
  return found
end

-- Return the instant, and the records and usage of keys, alternating, by members of an index.
local function keys_of(members)
  local names = {}
  for at, member in ipairs(members) do
    local id = string.sub(member, 17)
    names[2 * at - 1], names[2 * at] = KEY .. id, USAGE .. id
  end
  local found = #names > 0 and redis.call('HMGET', KEYS[1], unpack(names)) or {}
  table.insert(found, 1, whole_number(instant(ARGV[1])))
  return found
end

-- Return keys, newest first.
-- KEYS: the organization, the index of its keys by creation. ARGV: the instant, where to begin, how many.
local function by_creation()
  return keys_of(redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], '+', 'LIMIT', 0, ARGV[3]))
end

-- Return keys that are not revoked, the latest expiry first.
-- KEYS: the organization, the index of these keys. ARGV: as for by_creation.
local function by_expiry()
  return keys_of(redis.call('ZREVRANGEBYLEX', KEYS[2], ARGV[2], '-', 'LIMIT', 0, ARGV[3]))
end

-- Return the id of the organization, and keys that ended by an instant.
-- KEYS: the organization, the indexes of its unrevoked and of its revoked keys. ARGV: the instant by which
-- keys ended, how many.
local function ended()
  local edge = '[' .. place(ARGV[1], '\255')
  local found = redis.call('ZRANGEBYLEX', KEYS[3], '-', edge, 'LIMIT', 0, ARGV[2])
  local expired = redis.call('ZRANGEBYLEX', KEYS[2], '-', edge, 'LIMIT', 0, ARGV[2] - #found)
  for _, member in ipairs(expired) do
    found[#found + 1] = member
  end
  return keys_of(found)
end

-- Return the organization's id if it has a key that ended, or a record of the change log that was made, by
-- an instant; false otherwise. KEYS: as for ended. ARGV: the instant.
local function due()
  local edge, found = '[' .. place(ARGV[1], '\255'), false
  for index = 2, 3 do
    found = found or #redis.call('ZRANGEBYLEX', KEYS[index], '-', edge, 'LIMIT', 0, 1) > 0
  end
  local first, last = logged()
  if not found and first <= last then
    local oldest = redis.call('HGET', KEYS[1], LOG .. whole_number(first))
    found = tonumber(string.match(oldest, '^%d+')) <= tonumber(ARGV[1])
  end
  return found and redis.call('HGET', KEYS[1], 'id')
end
