-- The change log of an organization (D44), in fields of its hash: so a change and its record are one
-- step even while a slot moves, when scripts can use one Redis key only.
--
-- A record: its instant, a space, and the text of the change. Records have successive numbers, the first and
-- the last of which are in one more field.
--
-- include: time.lua

local LOG, LOGGED = 'log ', 'logged'
local LOGGED_AT_MOST = 10000

-- Return the numbers of the first and of the last record; 1 and 0 without one.
local function logged()
  local numbers = redis.call('HGET', KEYS[1], LOGGED)
  if not numbers then
    return 1, 0
  end
  local first, last = string.match(numbers, '^(%d+) (%d+)$')
  return tonumber(first), tonumber(last)
end

-- Add a record; remove the oldest one beyond the maximum. Without a text there is no record to add.
local function log_change(now, text)
  if text == '' then
    return
  end
  local first, last = logged()
  last = last + 1
  local record = whole_number(now) .. ' ' .. text
  if last - first >= LOGGED_AT_MOST then
    redis.call('HDEL', KEYS[1], LOG .. whole_number(first))
    first = first + 1
  end
  local numbers = whole_number(first) .. ' ' .. whole_number(last)
  redis.call('HSET', KEYS[1], LOG .. whole_number(last), record, LOGGED, numbers)
  redis.call('PERSIST', KEYS[1])
end

-- Return the instant of the reading, and records, the newest first, as alternating numbers and records.
-- KEYS: the organization. ARGV: the instant or empty; how many; the number that all are less than, or empty.
local function read_changes()
  local first, last = logged()
  if ARGV[3] ~= '' then
    last = math.min(last, tonumber(ARGV[3]) - 1)
  end
  local found = { whole_number(instant(ARGV[1])) }
  for number = last, math.max(first, last - tonumber(ARGV[2]) + 1), -1 do
    found[#found + 1] = number
    found[#found + 1] = redis.call('HGET', KEYS[1], LOG .. whole_number(number))
  end
  return found
end

-- Remove records of an instant or before, the oldest first.
-- KEYS: the organization. ARGV: the instant, how many. Returns how many there were.
local function remove_changes()
  local first, last = logged()
  local removed = 0
  while first <= last and removed < tonumber(ARGV[2]) do
    local name = LOG .. whole_number(first)
    if tonumber(string.match(redis.call('HGET', KEYS[1], name), '^%d+')) > tonumber(ARGV[1]) then
      break
    end
    redis.call('HDEL', KEYS[1], name)
    first, removed = first + 1, removed + 1
  end
  if removed > 0 and first > last then
    redis.call('HDEL', KEYS[1], LOGGED)
  elseif removed > 0 then
    redis.call('HSET', KEYS[1], LOGGED, whole_number(first) .. ' ' .. whole_number(last))
  end
  return removed
end
