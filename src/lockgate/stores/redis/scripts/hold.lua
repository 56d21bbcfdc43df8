-- Take, settle or renew a hold or a slot, or read budgets. The specification is lockgate/core/holds.py;
-- this restates it for Redis.
--
-- A hash has each budget under its field. Its head: the first hit of the newest cell, the grain, the units
-- used, the instant from which on nothing more is counted, which stands where drop_empty_fields looks for
-- it, the oldest hit, the last hit of the newest cell and its count; the units held, an instant before
-- which no hold ends, the latest instant at which a deadline was set, and the bytes of the holds. Then the
-- holds in the order of their grants, each the sizes of its id and owner, its units, deadline and span, and
-- both texts; then the older cells (fields.lua). Numbers are doubles.
--
-- A slot is a hold in a budget whose window has no length. Its hash is of its own.
--
-- The budget of a calendar quota has one cell for each period, at the first instant of the period. The
-- process names the periods around the instant by its own clock. If the instant, or one of the longest
-- period and a day before, is in none of them, the script ends before it has changed anything.
--
-- KEYS: the hash. ARGV: take, settle, renew or look; the instant, or empty; the id and the owner; the span of
-- the hold and the most holds of a window, then span, limit and grain of each window with the units to take,
-- or the units used, -1 for all that are held, packed; then the fields of the windows; and, if one is a
-- calendar quota, for each window the first instants of its periods, packed, empty for a sliding one.
--
-- Returns whether it was done, the instant and the deadline; then of each window the wait of the units to
-- take, empty if there are none, the units counted and those of this hold, after look and after a take that
-- was refused those of all holds, each packed; the units counted in periods, packed, for each the index, the
-- first instant, the units used before and after; and the slot of this id, after look all slots, packed.
-- Returns the instant alone if it needs the periods of another.
--
-- include: time.lua

local call, read, write, cut = redis.call, struct.unpack, struct.pack, string.sub
local now = instant(ARGV[2])

-- include: fields.lua

local HEAD, LEAST_HOLD, NEVER = 88, 28, 2 ^ 60
local FIRST, ROW = 17, 32 -- Where the windows start in their argument, and the bytes of each.
local hash, verb, id, owner, windows = KEYS[1], ARGV[1], ARGV[3], ARGV[4], ARGV[5]
local lasts, most = read('<dd', windows)
local number = (#windows - FIRST + 1) / ROW
local life, counts = math.max(LIFE, lasts / 1000), ''

local function decoded(value)
  local budget = { held = '', older = '' }
  if not value then
    budget.first, budget.grain, budget.used, budget.till, budget.oldest = 0, 0, 0, 0, 0
    budget.last, budget.count, budget.out, budget.due, budget.set = 0, 0, 0, NEVER, 0
    return budget
  end
  local length
  budget.first, budget.grain, budget.used, budget.till, budget.oldest,
    budget.last, budget.count, budget.out, budget.due, budget.set, length =
    read('<ddddddddddd', value)
  if length > 0 then
    budget.held = cut(value, HEAD + 1, HEAD + length)
  end
  budget.older = cut(value, HEAD + length + 1)
  return budget
end

local function encoded(budget)
  return write(
    '<ddddddddddd',
    budget.first, budget.grain, budget.used,
    budget.held == '' and budget.last or math.max(budget.till, budget.last),
    budget.oldest, budget.last, budget.count, budget.out, budget.due, budget.set, #budget.held
  ) .. budget.held .. budget.older
end

local function cells_of(budget)
  return budget.used, budget.oldest, budget.first, budget.last, budget.count, budget.older
end

local function set_cells(budget, used, oldest, first, last, count, older)
  budget.used, budget.oldest, budget.first = used, oldest, first
  budget.last, budget.count, budget.older = last, count, older
end

-- Return a hold: units, deadline, span, id and owner, and the place of the next.
local function hold_at(held, place)
  local size, more, units, deadline, span = read('<I2I2ddd', held, place)
  local from = place + LEAST_HOLD
  local till = from + size
  return units, deadline, span, cut(held, from, till - 1), cut(held, till, till + more - 1), till + more
end

local function packed(units, deadline, span, id, owner)
  return write('<I2I2ddd', #id, #owner, units, deadline, span) .. id .. owner
end

-- Return the places of the hold of this id and of the next; nil if it is not out.
local function place_of(held)
  if held == '' or not string.find(held, id, 1, true) then
    return nil
  end
  local read, place = read, 1
  while place <= #held do
    local size, more = read('<I2I2', held, place)
    local from = place + LEAST_HOLD
    if cut(held, from, from + size - 1) == id then
      return place, from + size + more
    end
    place = from + size + more
  end
end

local function by_deadline(one, other)
  return one[1] < other[1] or (one[1] == other[1] and one[2] < other[2])
end

-- Return the deadline and the units of each hold as a list, by deadline.
local function listed(held)
  local list, place = {}, 1
  while place <= #held do
    local units, deadline, _, _, _, following = hold_at(held, place)
    list[#list + 1], place = { deadline, units }, following
  end
  table.sort(list, by_deadline)
  return list
end

-- Leave the holds that are out, and return the deadline and the units of the others as a list, by deadline.
-- A clock that stepped back extends no hold beyond its span.
local function end_holds(budget)
  local held, parts, ended, place = budget.held, {}, {}, 1
  budget.out, budget.due, budget.set = 0, NEVER, now
  while place <= #held do
    local units, deadline, span, name, of, following = hold_at(held, place)
    if deadline <= now then
      ended[#ended + 1] = { deadline, units }
    else
      deadline = math.min(deadline, now + span)
      parts[#parts + 1] = packed(units, deadline, span, name, of)
      budget.out, budget.due = budget.out + units, math.min(budget.due, deadline)
    end
    place = following
  end
  budget.held = table.concat(parts)
  table.sort(ended, by_deadline)
  return ended
end

-- Make a budget what it is now: holds past their deadline are used at that instant.
local function bring_up_to_date(budget, span)
  if budget.last > now then
    set_cells(budget, moved_back(span, budget.grain, cells_of(budget)))
  end
  if budget.oldest <= now - span then
    set_cells(budget, pruned(now - span, cells_of(budget)))
  end
  -- Deadlines are set to a span from their instant, so none is further ahead unless it lies in the future.
  if budget.held ~= '' and (budget.due <= now or budget.set > now) then
    for _, one in ipairs(end_holds(budget)) do
      set_cells(budget, counted(one[1], one[2], budget.grain, cells_of(budget)))
    end
    set_cells(budget, pruned(now - span, cells_of(budget)))
  end
end

-- The functions of periods.lua, where a window is a calendar quota.
local periods_of, period_of, bring_into_period, count_in, used_in, wait_for_period

-- Return the units that a budget counts now.
local function total_of(budget, begins)
  local used = budget.used
  if begins then
    local first, ends = period_of(begins, now)
    used = used_in(budget, first, ends)
  end
  return math.min(2 ^ 53 - 1, used + budget.out)
end

if #ARGV > 5 + number then
  -- include: periods.lua
end

-- Return the microseconds after which units fit, 0 if they fit now.
local function wait_of(budget, span, limit, units)
  local excess = budget.used + budget.out - (limit - units)
  if excess <= 0 then
    return 0
  elseif units > limit then
    return math.max(1, span)
  end
  local until_then
  until_then, excess = last_of(excess, budget.last, budget.count, budget.older)
  for _, one in ipairs(excess > 0 and listed(budget.held) or {}) do
    until_then, excess = one[1], excess - one[2]
    if excess <= 0 then
      break
    end
  end
  return until_then + span - now
end

local stored = number > 0 and call('HMGET', hash, unpack(ARGV, 6, 5 + number)) or {}
local budgets, mine, fresh, calendars = {}, {}, 0, {}
local done, deadline = false, now
for index = 1, number do
  local budget, span = decoded(stored[index]), (read('<d', windows, FIRST + ROW * (index - 1)))
  local begins, is_known
  if periods_of then
    begins, is_known = periods_of(index, span)
  end
  if not begins then
    bring_up_to_date(budget, span)
  elseif not is_known then
    return { now }
  else
    calendars[index] = begins
    bring_into_period(budget, index, span, begins)
    life = math.max(life, math.ceil((span + 2 * DAY) / 1000))
  end
  if verb ~= 'look' then
    local place, following = place_of(budget.held)
    if place then
      local units, ends, _, _, of = hold_at(budget.held, place)
      if verb == 'take' or of == owner then
        mine[index], done, deadline = { place, following, units }, true, math.max(deadline, ends)
      end
    end
  end
  budgets[index], fresh = budget, fresh + (stored[index] and 0 or 1)
end

local waits, units_held = '', ''
local takes, looks = verb == 'take' and not done, verb == 'look'
if takes or looks then
  done = takes
  local is_crowded = fresh > 0 and call('HLEN', hash) + fresh > FIELDS_AT_MOST
  for index, budget in ipairs(budgets) do
    local span, limit, _, units = read('<dddd', windows, FIRST + ROW * (index - 1))
    local begins = calendars[index]
    local wait = begins and wait_for_period(budget, begins, limit, units)
      or wait_of(budget, span, limit, units)
    if #budget.held >= most * LEAST_HOLD then
      local list = listed(budget.held)
      if #list >= most then
        wait = math.max(wait, list[1][1] - now)
      end
    end
    if is_crowded and not stored[index] then
      wait = math.max(wait, DAY)
    end
    done = done and wait == 0
    waits = waits .. write('<d', wait)
  end
  deadline = done and now + lasts or now
end

for index, budget in ipairs(budgets) do
  local _, _, grain, units = read('<dddd', windows, FIRST + ROW * (index - 1))
  local held, of_this, new = budget.held, 0, nil
  local place, following = unpack(mine[index] or {})
  if looks or takes and not done then
    of_this = math.min(LARGEST, budget.out)
  elseif takes then
    of_this, new = units, packed(units, deadline, lasts, id, owner)
    budget.held, budget.grain, budget.out = held .. new, grain, budget.out + units
  elseif place then
    of_this = mine[index][3]
    if verb == 'settle' then
      budget.held = cut(held, 1, place - 1) .. cut(held, following)
      budget.out = budget.out - of_this
      if calendars[index] then
        count_in(budget, index, (period_of(calendars[index], now)), units < 0 and of_this or units)
      else
        units = units < 0 and of_this or math.min(units, LARGEST - budget.used - budget.out)
        set_cells(budget, counted(now, units, budget.grain, cells_of(budget)))
      end
    elseif verb == 'renew' then
      deadline, new = now + lasts, packed(of_this, now + lasts, lasts, id, owner)
      budget.held = cut(held, 1, place - 1) .. new .. cut(held, following)
    end
  end
  if new then
    budget.due, budget.set = math.min(budget.due, deadline), now
    budget.till = math.max(budget.till, deadline)
  end
  units_held = units_held .. write('<d', of_this)
end

local totals, changed, emptied = '', {}, {}
for index, budget in ipairs(budgets) do
  totals = totals .. write('<d', total_of(budget, calendars[index]))
  if not looks and stored[index] and budget.used + budget.out == 0 then
    emptied[#emptied + 1] = ARGV[5 + index]
  elseif not looks and budget.used + budget.out > 0 then
    local value = encoded(budget)
    if value ~= stored[index] then
      changed[#changed + 1] = ARGV[5 + index]
      changed[#changed + 1] = value
    end
  end
end
if #emptied > 0 then
  call('HDEL', hash, unpack(emptied))
end
put_fields(hash, changed, life)
if fresh > 0 and changed[1] then
  drop_empty_fields(hash)
end
local slots = ''
if ARGV[6] == 'slots 0' then
  slots = budgets[1].held
  if not looks then
    local place, following = place_of(slots)
    slots = place and cut(slots, place, following - 1) or ''
  end
end
return { done and 1 or 0, now, deadline, waits, totals, units_held, looks and '' or counts, slots }
