-- Changes to the rows of an organization (rows.py): a script calls one of the last three functions.
--
-- The hash of an organization has a field for each row: a key's record (key_records.lua), and beside it
-- its usage; the account; the assigned plan, in JSON; and the organization's id.
--
-- The record of an account: created, claimed at, token revoked at, signed in at, sign-outs, scheme,
-- digest, seal, claimed by, and the fields that never change, each but the last without spaces. Empty:
-- that has not happened, or there is no seal.
--
-- KEYS: those of write_key in key_records.lua. The first three of ARGV are the id of the commit, the
-- instant or empty, and the text for the change log or empty. Each function returns a verdict, the instant
-- of the step, the number of keys that it has ended, and more of its own.
--
-- include: key_records.lua
-- include: change.lua

local MADE, MADE_AT_MOST, MADE_FOR = 'made', 1024, 60000000
local STAMP, AT_ONCE = '-1', 1000

-- The commits that were made lately, the latest first: of each a space, its id, its instant and the number
-- of keys that it ended. Only the end of the last one may be cut off.

-- Return the instant of the commit with an id, and the keys that it ended; nil if it was not made lately.
local function made_before(id)
  local made = redis.call('HGET', KEYS[1], MADE) or ''
  local _, last = string.find(made, ' ' .. id .. ':', 1, true)
  if last then
    return string.match(made, '^(%d+):(%d+);', last + 1)
  end
end

-- Remember a commit, and the latest ones before it.
local function remember(id, now, ended)
  local made = redis.call('HGET', KEYS[1], MADE) or ''
  if now - (tonumber(string.match(made, ':(%d+)')) or 0) > MADE_FOR then
    made = ''
  end
  made = ' ' .. id .. ':' .. whole_number(now) .. ':' .. ended .. ';' .. made
  redis.call('HSET', KEYS[1], MADE, string.sub(made, 1, MADE_AT_MOST))
  redis.call('PERSIST', KEYS[1])
end

-- Let the hash expire if it has no more than what commits and usage leave there: a repetition of the
-- last one is answered as it was first.
local function tidy()
  local rest = redis.call('HLEN', KEYS[1])
  for _, field in ipairs({ 'id', MADE, 'marks' }) do
    rest = rest - redis.call('HEXISTS', KEYS[1], field)
  end
  if rest == 0 then
    redis.call('PEXPIRE', KEYS[1], MADE_FOR / 1000)
  end
end

-- Return the record of a key or an account with the instant of the step for each STAMP.
local function stamped(record, now)
  local created, second, third, rest = string.match(record, '^(%S*) (%S*) (%S*)(.*)$')
  if created == STAMP then
    created = whole_number(now - now % 1000)
  end
  second = second == STAMP and whole_number(now) or second
  third = third == STAMP and whole_number(now) or third
  return table.concat({ created, second, third }, ' ') .. rest
end

-- Return the record of an account so, with the instant of a sign-in (STAMP in rows.py).
local function stamped_account(record, now)
  record = stamped(record, now)
  local times, signed_in, rest = string.match(record, '^(%S* %S* %S* )(%-%d+)(.*)$')
  return times and times .. whole_number(math.max(now, STAMP - signed_in)) .. rest or record
end

-- Revoke all live keys; return their number.
local function revoke_all(now)
  local first, at, number = '(' .. place(now, '\255'), whole_number(now), 0
  local live = redis.call('ZRANGEBYLEX', KEYS[2], first, '+')
  redis.call('ZREMRANGEBYLEX', KEYS[2], first, '+')
  for from = 1, #live, AT_ONCE do
    local ids, fields, records, members = {}, {}, {}, {}
    for one = from, math.min(from + AT_ONCE - 1, #live) do
      ids[#ids + 1] = string.sub(live[one], 17)
      fields[#fields + 1] = KEY .. ids[#ids]
    end
    for one, record in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do
      if is_live(record, now) then
        records[#records + 1] = fields[one]
        records[#records + 1] = string.gsub(record, '^(%S* %S* )', '%1' .. at, 1)
        members[#members + 1], members[#members + 2] = 0, place(now, ids[one])
      else -- It ended while a slot moved, before it was moved in the indexes.
        write_key(ids[one], record, record)
      end
    end
    if #members > 0 then
      redis.call('HSET', KEYS[1], unpack(records))
      redis.call('ZADD', KEYS[4], unpack(members))
      number = number + #members / 2
    end
  end
  return number
end

-- Write rows if each is as expected.
-- ARGV from 4 on: the organization, the most live keys beside a new one or empty, whether to revoke all
-- keys; then for each row its field, the record expected or empty, the record to write, whether the key
-- must be live, and the usage of a new key or empty.
-- Returns after the number the usage of each row, or empty.
local function commit()
  local FIRST, WIDTH = 7, 5
  local id, now = ARGV[1], instant(ARGV[2])
  local at, ended = made_before(id)

  local function verdict()
    local new_keys, ending = 0, 0
    for row = FIRST, #ARGV, WIDTH do
      local field, expected, new, must_live = unpack(ARGV, row, row + 3)
      local kept = redis.call('HGET', KEYS[1], field) or ''
      local is_key = string.sub(field, 1, #KEY) == KEY
      if expected == '' and kept ~= '' and field ~= 'plan' then
        return 'taken'
      elseif kept ~= expected then
        return 'changed'
      elseif is_key and expected == '' then
        new_keys = new_keys + 1
      elseif is_key and is_live(expected, now) then
        ending = ending + (is_live(stamped(new, now), now) and 0 or 1)
      elseif must_live == '1' then
        return 'changed'
      end
    end
    if ARGV[5] ~= '' and new_keys > 0 then
      local live = redis.call('ZLEXCOUNT', KEYS[2], '(' .. place(now, '\255'), '+')
      if live - ending >= tonumber(ARGV[5]) then
        return 'full'
      end
    end
    return 'done'
  end

  if not at then
    local answer = verdict()
    if answer ~= 'done' then
      return { answer, whole_number(now), '0' }
    end
    at, ended = whole_number(now), ARGV[6] == '1' and revoke_all(now) or 0
    local is_changed = ended > 0 or (#ARGV < FIRST and ARGV[6] ~= '1')
    for row = FIRST, #ARGV, WIDTH do
      local field, expected, new, _, usage = unpack(ARGV, row, row + 4)
      is_changed = is_changed or new ~= expected
      if string.sub(field, 1, #KEY) == KEY then
        local key = string.sub(field, #KEY + 1)
        write_key(key, expected ~= '' and expected, stamped(new, now))
        if usage ~= '' then
          redis.call('HSET', KEYS[1], USAGE .. key, usage)
        end
      else
        redis.call('HSET', KEYS[1], field, field == 'plan' and new or stamped_account(new, now))
      end
    end
    redis.call('HSET', KEYS[1], 'id', ARGV[4])
    if is_changed then
      log_change(now, ARGV[3])
    end
    remember(id, now, ended)
  end

  local answer = { 'done', at, tostring(ended) }
  for row = FIRST, #ARGV, WIDTH do
    local key = string.match(ARGV[row], '^' .. KEY .. '(.*)$')
    answer[#answer + 1] = key and redis.call('HGET', KEYS[1], USAGE .. key) or ''
  end
  return answer
end

-- Remove keys. ARGV from 4 on: their ids.
local function remove()
  local now = instant(ARGV[2])
  local at, ended = made_before(ARGV[1])
  if not at then
    at, ended = whole_number(now), 0
    for row = 4, #ARGV do
      local record = redis.call('HGET', KEYS[1], KEY .. ARGV[row])
      if record then
        write_key(ARGV[row], record, false)
        ended = ended + 1
      end
    end
    remember(ARGV[1], now, ended)
    tidy()
  end
  return { 'done', at, tostring(ended) }
end

-- Remove an unclaimed account that has been idle, with its keys.
-- ARGV from 4 on: the instant since which it must be unused.
-- Returns after the number 'gone' if it was removed before, 'never' if it has been claimed or assigned a
-- plan, or the instant of its latest use.
local function remove_unused()
  local now = instant(ARGV[2])
  local at, ended = made_before(ARGV[1])
  if at then
    return { 'done', at, ended, 'gone' }
  end
  local record = redis.call('HGET', KEYS[1], 'account')
  if not record then
    return { 'changed', whole_number(now), '0', 'gone' }
  end
  local words = { string.match(record, '^(%S*) (%S*) (%S*) (%S*) %S* %S* %S* %S* (%S*) ') }
  if words[5] ~= '' or redis.call('HEXISTS', KEYS[1], 'plan') == 1 then
    return { 'changed', whole_number(now), '0', 'never' }
  end
  local latest = math.max(tonumber(words[1]), tonumber(words[4]) or 0)
  local all, fields, keys = redis.call('HGETALL', KEYS[1]), { 'account' }, 0
  for field = 1, #all, 2 do
    local kind = string.sub(all[field], 1, #KEY)
    if kind == KEY then
      latest = math.max(latest, tonumber((string.match(all[field + 1], '^%S*'))))
      fields[#fields + 1] = all[field]
      keys = keys + 1
    elseif kind == USAGE then
      local requests, last = struct.unpack('<i8i8', all[field + 1])
      latest = math.max(latest, requests > 0 and last or 0)
      fields[#fields + 1] = all[field]
    end
  end
  if latest > tonumber(ARGV[4]) then
    return { 'changed', whole_number(now), '0', whole_number(latest) }
  end
  for _, field in ipairs(fields) do
    redis.call('HDEL', KEYS[1], field)
  end
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
  log_change(now, ARGV[3])
  remember(ARGV[1], now, keys)
  tidy()
  return { 'done', whole_number(now), tostring(keys), 'gone' }
end
