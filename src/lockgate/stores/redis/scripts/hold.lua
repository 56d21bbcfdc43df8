-- Take, settle or renew a hold, or read budgets. The specification is lockgate/core/holds.py; this
-- restates it for Redis.
--
-- The hash of an organization's named limits has each budget under its field. Its head: the first hit of
-- the newest cell, the grain, the units used, the instant from which on nothing more is counted, which
-- stands where limit_fields.lua looks for it, the oldest hit, the last hit of the newest cell and its
-- count; the units held, an instant before which no hold ends, the latest instant at which a deadline
-- was set, and the bytes of the holds. Then the holds, each its id, units, deadline and span; then the
-- older cells, oldest first. All numbers are doubles.
--
-- The budget of a calendar quota has one cell for each period, at the first instant of the period. The
-- process names the periods around the instant by its own clock. If the instant, or one of the longest
-- period and a day before, is in none of them, the script ends before it has changed anything.
--
-- KEYS: the named limits. ARGV: take, settle, renew or look; the instant, or empty; the id; the span of the
-- hold; the most holds of a window; span, limit and grain of each window with the units to take, or the
-- units used, -1 for all that are held, packed; then the fields of the windows; and, if one is a calendar quota,
-- for each window the first instants of its periods, packed, empty for a sliding one.
--
-- Returns whether it was done, the instant and the deadline; then of each window the wait of the units to
-- take, empty if there are none, the units counted and those of this hold, after look and after a take that
-- was refused those of all holds, each packed; and the units counted in periods, packed, for each the index, the first instant, the units
-- used before and after. Returns the instant alone if it needs the periods of another.
--
-- include: time.lua

-- Sets FIELDS_AT_MOST, LIFE, DAY, keep_for and drop_empty_fields.
-- include: limit_fields.lua

local call, read, write, cut = redis.call, struct.unpack, struct.pack, string.sub
local verb, now, id = ARGV[1], instant(ARGV[2]), ARGV[3]

-- Sets CELL, FULL_CELLS and moved_back.
-- include: packed_cells.lua

local HEAD, HELD = 88, 40
local LARGEST, NEVER = 2 ^ 53 - 1, 2 ^ 60
local lasts, most, windows = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local number = #windows / 32
local life, counts = LIFE, ''

local function by_deadline(one, other)
  return one[3] < other[3]
end

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

local function prune(budget, span)
  local edge = now - span
  if budget.last <= edge or budget.used == 0 then
    budget.used, budget.oldest, budget.first, budget.last, budget.count, budget.older =
      0, 0, 0, 0, 0, ''
  elseif budget.oldest <= edge then
    local older, used, from = budget.older, budget.used, 1
    budget.oldest = budget.last
    for place = 1, #older, CELL do
      local instant, units = read('<dd', older, place)
      if instant > edge then
        budget.oldest = instant
        break
      end
      used, from = used - units, place + CELL
    end
    budget.older, budget.used = cut(older, from), used
  end
end

local function count_at(budget, at, units)
  if units == 0 then
    return
  elseif budget.used == 0 then
    budget.used, budget.oldest, budget.first, budget.last, budget.count = units, at, at, at, units
    return
  end
  budget.used = budget.used + units
  local older = budget.older
  if at < budget.last then
    for place = 1, #older, CELL do
      local instant, kept = read('<dd', older, place)
      if instant >= at then
        budget.older = cut(older, 1, place - 1) .. write('<dd', instant, kept + units)
          .. cut(older, place + CELL)
        return
      end
    end
    budget.count = budget.count + units
  elseif (at - budget.first < budget.grain and #older >= FULL_CELLS) or budget.last == at then
    budget.last, budget.count = at, budget.count + units
    if older == '' then
      budget.oldest = at
    end
  else
    budget.older = older .. write('<dd', budget.last, budget.count)
    budget.first, budget.last, budget.count = at, at, units
  end
end

-- Return the holds as a list, in the order of their deadlines.
local function listed(held)
  local list = {}
  for place = 1, #held, HELD do
    list[#list + 1] = { read('<c16ddd', held, place) }
  end
  table.sort(list, by_deadline)
  return list
end

-- Count the holds past their deadline as used at that instant. A clock that stepped back extends no hold
-- beyond its span.
local function end_holds(budget, span)
  local parts = {}
  budget.out, budget.due, budget.set = 0, NEVER, now
  for _, one in ipairs(listed(budget.held)) do
    local name, units, deadline, length = unpack(one)
    if deadline <= now then
      count_at(budget, deadline, units)
    else
      deadline = math.min(deadline, now + length)
      parts[#parts + 1] = write('<c16ddd', name, units, deadline, length)
      budget.out, budget.due = budget.out + units, math.min(budget.due, deadline)
    end
  end
  budget.held = table.concat(parts)
  prune(budget, span)
end

-- Make a budget what it is now.
local function bring_up_to_date(budget, span)
  if budget.last > now then
    local older, future, oldest = moved_back(budget.older, span, budget.grain, budget.oldest)
    budget.older, budget.oldest, budget.count = older, oldest, budget.count + future
    budget.first, budget.last = math.min(budget.first, now), now
  end
  prune(budget, span)
  -- Deadlines are set to a span from their instant, so none is further ahead unless it lies in the future.
  if budget.held ~= '' and (budget.due <= now or budget.set > now) then
    end_holds(budget, span)
  end
end

-- Return the first instants of a window's periods; nil: it slides.
local function periods_of(index, span)
  local packed = ARGV[6 + number + index]
  if not packed or packed == '' then
    return nil
  end
  local begins = {}
  for place = 1, #packed, 8 do
    begins[#begins + 1] = (read('<d', packed, place))
  end
  -- The next period has to be known as well, and when it ends.
  local is_known = begins[1] <= math.max(0, now - span - DAY) and now < begins[#begins - 1]
  return begins, is_known
end

-- Return the first instant of the period of an instant, of the next, and the end of that.
local function period_of(begins, at)
  local place = #begins
  while begins[place] > at do
    place = place - 1
  end
  return begins[place], begins[place + 1], begins[place + 2]
end

-- Return the cells of a calendar quota as a list, oldest first.
local function cells_of(budget)
  local list = {}
  for place = 1, #budget.older, CELL do
    list[#list + 1] = { read('<dd', budget.older, place) }
  end
  if budget.used > 0 then
    list[#list + 1] = { budget.last, budget.count }
  end
  return list
end

local function put_cells(budget, list)
  local newest = table.remove(list)
  if not newest then
    budget.used, budget.oldest, budget.first, budget.last, budget.count, budget.older =
      0, 0, 0, 0, 0, ''
    return
  end
  local used, parts = newest[2], {}
  for place, one in ipairs(list) do
    used, parts[place] = used + one[2], write('<dd', one[1], one[2])
  end
  budget.used, budget.older = used, table.concat(parts)
  budget.oldest = list[1] and list[1][1] or newest[1]
  budget.first, budget.last, budget.count = newest[1], newest[1], newest[2]
end

-- Count units at the first instant of a period.
local function count_in(budget, index, at, units)
  if units == 0 then
    return
  end
  local list, place = cells_of(budget), 1
  while list[place] and list[place][1] < at do
    place = place + 1
  end
  if not list[place] or list[place][1] > at then
    table.insert(list, place, { at, 0 })
  end
  local before = list[place][2]
  list[place][2] = math.min(LARGEST, before + units)
  counts = counts .. write('<dddd', index - 1, at, before, list[place][2])
  put_cells(budget, list)
end

local function used_in(budget, begins, ends)
  local used = 0
  for _, one in ipairs(cells_of(budget)) do
    if one[1] >= begins and one[1] < ends then
      used = used + one[2]
    end
  end
  return used
end

-- Make the budget of a calendar quota what it is now. Cells in the future stay.
local function bring_into_period(budget, index, span, begins)
  local edge, kept, parts = math.max(0, now - span - DAY), {}, {}
  local oldest = period_of(begins, edge)
  for _, one in ipairs(cells_of(budget)) do
    if one[1] >= oldest then
      kept[#kept + 1] = one
    end
  end
  put_cells(budget, kept)
  local ended = {}
  budget.out, budget.due, budget.set = 0, NEVER, now
  for place = 1, #budget.held, HELD do
    local name, units, deadline, length = read('<c16ddd', budget.held, place)
    if deadline > now then
      deadline = math.min(deadline, now + length)
      parts[#parts + 1] = write('<c16ddd', name, units, deadline, length)
      budget.out, budget.due = budget.out + units, math.min(budget.due, deadline)
    elseif deadline > edge then
      ended[#ended + 1] = { deadline, units }
    end
  end
  budget.held = table.concat(parts)
  table.sort(ended, function(one, other)
    return one[1] < other[1] or (one[1] == other[1] and one[2] < other[2])
  end)
  for _, one in ipairs(ended) do
    count_in(budget, index, (period_of(begins, one[1])), one[2])
  end
end

-- Return the units that a budget counts now.
local function total_of(budget, begins)
  local used = budget.used
  if begins then
    local first, ends = period_of(begins, now)
    used = used_in(budget, first, ends)
  end
  return math.min(LARGEST, used + budget.out)
end

-- Return the microseconds after which units fit a calendar quota, 0 if they fit now.
local function wait_for_period(budget, begins, limit, units)
  if limit == 0 or total_of(budget, begins) + units <= limit then -- 0: the quota is soft.
    return 0
  end
  local _, ends, next_ends = period_of(begins, now)
  local counted = used_in(budget, ends, next_ends) + units
  for place = 1, #budget.held, HELD do
    local _, held, deadline = read('<c16dd', budget.held, place)
    if deadline >= ends then
      counted = counted + held
    end
  end
  return (units <= limit and counted > limit and next_ends or ends) - now
end

-- Return where a hold begins among those of a budget.
local function place_of(held)
  local place = string.find(held, id, 1, true)
  while place and (place - 1) % HELD > 0 do
    place = string.find(held, id, place + 1, true)
  end
  return place
end

-- Return the microseconds after which units fit, 0 if they fit now.
local function wait_of(budget, span, limit, units)
  local excess = budget.used + budget.out - (limit - units)
  if excess <= 0 then
    return 0
  elseif units > limit then
    return span
  end
  for place = 1, #budget.older, CELL do
    local instant, count = read('<dd', budget.older, place)
    excess = excess - count
    if excess <= 0 then
      return instant + span - now
    end
  end
  excess = excess - budget.count
  if excess <= 0 then
    return budget.last + span - now
  end
  for _, one in ipairs(listed(budget.held)) do
    excess = excess - one[2]
    if excess <= 0 then
      return one[3] + span - now
    end
  end
end

local stored = number > 0 and call('HMGET', KEYS[1], unpack(ARGV, 7, 6 + number)) or {}
local budgets, mine, fresh, calendars = {}, {}, 0, {}
local done, deadline = false, now
for index = 1, number do
  local budget, span = decoded(stored[index]), (read('<d', windows, 32 * index - 31))
  local begins, is_known = periods_of(index, span)
  if not begins then
    bring_up_to_date(budget, span)
  elseif not is_known then
    return { now }
  else
    calendars[index] = begins
    bring_into_period(budget, index, span, begins)
    life = math.max(life, math.ceil((span + 2 * DAY) / 1000))
  end
  local place = verb ~= 'look' and budget.held ~= '' and place_of(budget.held)
  if place then
    mine[index], done = place, true
    deadline = math.max(deadline, (read('<d', budget.held, place + 24)))
  end
  budgets[index], fresh = budget, fresh + (stored[index] and 0 or 1)
end

local waits, units_held = '', ''
local takes, looks = verb == 'take' and not done, verb == 'look'
if takes or looks then
  done = takes
  local is_crowded = fresh > 0 and call('HLEN', KEYS[1]) + fresh > FIELDS_AT_MOST
  for index, budget in ipairs(budgets) do
    local span, limit, _, units = read('<dddd', windows, 32 * index - 31)
    local begins = calendars[index]
    local wait = begins and wait_for_period(budget, begins, limit, units)
      or wait_of(budget, span, limit, units)
    if #budget.held >= most * HELD then
      wait = math.max(wait, listed(budget.held)[1][3] - now)
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
  local _, _, grain, units = read('<dddd', windows, 32 * index - 31)
  local place, held = mine[index], budget.held
  local of_this = place and read('<d', held, place + 16) or 0
  if looks or takes and not done then
    of_this = math.min(LARGEST, budget.out)
  elseif takes and done then
    of_this = units
    budget.held, budget.grain = held .. write('<c16ddd', id, units, deadline, lasts), grain
    budget.out = budget.out + units
  elseif verb == 'settle' and place then
    budget.held = cut(held, 1, place - 1) .. cut(held, place + HELD)
    budget.out = budget.out - of_this
    if calendars[index] then
      count_in(budget, index, (period_of(calendars[index], now)), units < 0 and of_this or units)
    else
      local total = budget.used + budget.out
      count_at(budget, now, units < 0 and of_this or math.min(units, LARGEST - total))
    end
  elseif verb == 'renew' and place then
    deadline = now + lasts
    budget.held = cut(held, 1, place - 1) .. write('<c16ddd', id, of_this, deadline, lasts)
      .. cut(held, place + HELD)
  end
  if deadline > now and (takes or verb == 'renew') and budget.held ~= held then
    budget.due, budget.set = math.min(budget.due, deadline), now
    budget.till = math.max(budget.till, deadline)
  end
  units_held = units_held .. write('<d', of_this)
end

local counted, changed = '', {}
for index, budget in ipairs(budgets) do
  counted = counted .. write('<d', total_of(budget, calendars[index]))
  if not looks and (stored[index] or budget.used + budget.out > 0) then
    local value = encoded(budget)
    if value ~= stored[index] then
      changed[#changed + 1] = ARGV[6 + index]
      changed[#changed + 1] = value
    end
  end
end
if #changed > 0 then
  call('HSET', KEYS[1], unpack(changed))
  keep_for(KEYS[1], life)
end
if fresh > 0 and #changed > 0 then
  drop_empty_fields(KEYS[1], now)
end
return { done and 1 or 0, now, deadline, waits, counted, units_held, looks and '' or counts }
