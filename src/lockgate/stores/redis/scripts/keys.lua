-- Steps about one key: a script calls one of these functions.
--
-- include: key_records.lua
-- include: usage_marks.lua

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

-- Give up the claim of a handle. KEYS: the handle. ARGV: the claim that it must hold.
local function unclaim()
  if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('DEL', KEYS[1])
  end
  return 1
end
