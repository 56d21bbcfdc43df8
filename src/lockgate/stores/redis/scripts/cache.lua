-- The verbs of a cache of keys and plans that a database keeps: a script calls one of these functions.
--
-- The hash of an organization holds its copies and the fill token that they were made under, and
-- expires as a whole.

-- Return the fill token of an organization, a new one if it has none.
-- KEYS: the organization. ARGV: a new token, milliseconds for which copies last.
local function fill_token()
  local token = redis.call('HGET', KEYS[1], 'fill_token')
  if token then
    return token
  end
  redis.call('HSET', KEYS[1], 'fill_token', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return ARGV[1]
end

-- Install a copy of a key and of its organization's plan if the fill token is still the same.
-- KEYS: the organization. ARGV: the token; the fields of the key's record and usage; the record; how many
-- requests and the instant of the last; the plan assignment or empty. Returns 1 or 0.
local function install()
  if redis.call('HGET', KEYS[1], 'fill_token') ~= ARGV[1] then
    return 0
  end
  redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
  local requests, last = tonumber(ARGV[5]), tonumber(ARGV[6])
  local usage = redis.call('HGET', KEYS[1], ARGV[3])
  if usage then -- Requests counted here may not have reached the database yet.
    local more, later = struct.unpack('<i8i8', usage)
    requests, last = math.max(requests, more), math.max(last, later)
  end
  redis.call('HSET', KEYS[1], ARGV[3], struct.pack('<i8i8', requests, last))
  if ARGV[7] == '' then
    redis.call('HDEL', KEYS[1], 'plan')
  else
    redis.call('HSET', KEYS[1], 'plan', ARGV[7])
  end
  return 1
end

-- Replace a string if it has the expected value.
-- KEYS: the string. ARGV: the value expected, empty for none; the one to set; milliseconds that it lasts.
-- Returns 1 or 0.
local function replace()
  if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
    return 0
  end
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 1
end
