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
-- KEYS: the named limits. ARGV: take, settle, renew or look; the instant, or empty; the id; the span of the
-- hold; the most holds of a window; span, limit and grain of each window with the units to take, or the
-- units used, -1 for all that are held, packed; then the fields of the windows.
--
-- Returns whether it was done, the instant, the deadline, the index of the refusing window or -1 and its
-- wait; then the units counted in each window and those of this hold, both packed; after look those of
-- all holds.
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
local budgets, mine, fresh = {}, {}, 0
local done, deadline = false, now
for index = 1, number do
  local budget = decoded(stored[index])
  bring_up_to_date(budget, (read('<d', windows, 32 * index - 31)))
  local place = verb ~= 'look' and budget.held ~= '' and place_of(budget.held)
  if place then
    mine[index], done = place, true
    deadline = math.max(deadline, (read('<d', budget.held, place + 24)))
  end
  budgets[index], fresh = budget, fresh + (stored[index] and 0 or 1)
end

local refusing, longest, units_held = -1, 0, ''
local takes, looks = verb == 'take' and not done, verb == 'look'
if takes then
  local is_crowded = fresh > 0 and call('HLEN', KEYS[1]) + fresh > FIELDS_AT_MOST
  for index, budget in ipairs(budgets) do
    local span, limit, _, units = read('<dddd', windows, 32 * index - 31)
    local wait = wait_of(budget, span, limit, units)
    if #budget.held >= most * HELD then
      wait = math.max(wait, listed(budget.held)[1][3] - now)
    end
    if is_crowded and not stored[index] then
      wait = math.max(wait, DAY)
    end
    if wait > longest then
      longest, refusing = wait, index - 1
    end
  end
  done = refusing < 0
  deadline = done and now + lasts or now
end

for index, budget in ipairs(budgets) do
  local _, _, grain, units = read('<dddd', windows, 32 * index - 31)
  local place, held = mine[index], budget.held
  local of_this = place and read('<d', held, place + 16) or 0
  if looks then
    of_this = budget.out
  elseif takes and done then
    of_this = units
    budget.held, budget.grain = held .. write('<c16ddd', id, units, deadline, lasts), grain
    budget.out = budget.out + units
  elseif verb == 'settle' and place then
    budget.held = cut(held, 1, place - 1) .. cut(held, place + HELD)
    budget.out = budget.out - of_this
    local total = budget.used + budget.out
    count_at(budget, now, units < 0 and of_this or math.min(units, LARGEST - total))
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
  counted = counted .. write('<d', budget.used + budget.out)
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
  keep_for(KEYS[1], LIFE)
end
if fresh > 0 and #changed > 0 then
  drop_empty_fields(KEYS[1], now)
end
return { done and 1 or 0, now, deadline, refusing, longest, counted, units_held }
