-- Take, settle or renew a hold, or read budgets. The specification is lockgate/core/holds.py; this restates it for Redis.
--
-- The hash of an organization's named limits has each budget under its field: the first hit of the newest
-- cell, the grain, the number of holds, the instant from which on nothing more is counted, which stands
-- where limits.lua looks for it, and the number of cells; then the cells, oldest first, each its last hit
-- and its count; then the holds, each its id, units, deadline and span. All numbers are doubles.
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

-- Sets FIELDS_AT_MOST, LIFE, DAY and drop_empty_fields.
-- include: limit_fields.lua

-- include: join_cells.lua

local call, read, write = redis.call, struct.unpack, struct.pack
local HEAD, CELL, HELD = 40, 16, 40
local FULL, LARGEST = 64, 2 ^ 53 - 1
local verb, now, id = ARGV[1], instant(ARGV[2]), ARGV[3]
local lasts, most, windows = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local number = #windows / 32

local function by_deadline(one, other)
  return one[3] < other[3]
end

local function decoded(value)
  local budget = { first = 0, grain = 0, cells = {}, held = {} }
  if not value then
    return budget
  end
  local first, grain, held, _, cells = read('<ddddd', value)
  budget.first, budget.grain = first, grain
  local place = HEAD + 1
  for index = 1, cells do
    budget.cells[index] = { read('<dd', value, place) }
    place = place + CELL
  end
  for index = 1, held do
    budget.held[index] = { read('<c16ddd', value, place) }
    place = place + HELD
  end
  return budget
end

local function encoded(budget)
  local parts, latest = {}, 0
  for _, cell in ipairs(budget.cells) do
    parts[#parts + 1] = write('<dd', cell[1], cell[2])
    latest = cell[1]
  end
  for _, one in ipairs(budget.held) do
    parts[#parts + 1] = write('<c16ddd', one[1], one[2], one[3], one[4])
    latest = math.max(latest, one[3])
  end
  local head = write('<ddddd', budget.first, budget.grain, #budget.held, latest, #budget.cells)
  return head .. table.concat(parts)
end

-- After the clock has stepped back, make one cell of those in the future, which ends now (W11).
local function move_back(budget, span)
  local kept, newest = {}, { now, budget.cells[#budget.cells][2] }
  for index = 1, #budget.cells - 1 do
    local cell = budget.cells[index]
    if cell[1] >= now then
      newest[2] = newest[2] + cell[2]
    else
      kept[#kept + 1] = cell
    end
  end
  if budget.grain > 0 and #kept > FULL + math.floor(span / budget.grain) then
    kept = join_cells(kept)
  end
  kept[#kept + 1] = newest
  budget.cells, budget.first = kept, math.min(budget.first, now)
end

local function prune(budget, span)
  local kept, edge = {}, now - span
  for _, cell in ipairs(budget.cells) do
    if cell[1] > edge then
      kept[#kept + 1] = cell
    end
  end
  budget.cells = kept
end

local function count_at(budget, at, units)
  local cells = budget.cells
  local newest = cells[#cells]
  if units == 0 then
    return
  elseif newest and at < newest[1] then
    for _, cell in ipairs(cells) do
      if cell[1] >= at then
        cell[2] = cell[2] + units
        return
      end
    end
  elseif newest and ((at - budget.first < budget.grain and #cells >= FULL) or newest[1] == at) then
    newest[1], newest[2] = at, newest[2] + units
  else
    cells[#cells + 1], budget.first = { at, units }, at
  end
end

local function total(budget)
  local sum = 0
  for _, cell in ipairs(budget.cells) do
    sum = sum + cell[2]
  end
  for _, one in ipairs(budget.held) do
    sum = sum + one[2]
  end
  return sum
end

-- Make a budget what it is now: holds past their deadline are used at that instant.
local function bring_up_to_date(budget, span)
  if #budget.cells > 0 and budget.cells[#budget.cells][1] > now then
    move_back(budget, span)
  end
  prune(budget, span)
  local live, ended = {}, {}
  for _, one in ipairs(budget.held) do
    if one[3] > now then
      one[3] = math.min(one[3], now + one[4])
      live[#live + 1] = one
    else
      ended[#ended + 1] = one
    end
  end
  if #ended > 0 then
    table.sort(ended, by_deadline)
    for _, one in ipairs(ended) do
      count_at(budget, one[3], one[2])
    end
    prune(budget, span)
  end
  budget.held = live
end

-- Return the microseconds after which units fit, 0 if they fit now.
local function wait_of(budget, span, limit, units)
  local excess = total(budget) - (limit - units)
  if excess <= 0 then
    return 0
  elseif units > limit then
    return span
  end
  local leaving = { unpack(budget.held) }
  table.sort(leaving, by_deadline)
  for _, cell in ipairs(budget.cells) do
    excess = excess - cell[2]
    if excess <= 0 then
      return cell[1] + span - now
    end
  end
  for _, one in ipairs(leaving) do
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
  for place, one in ipairs(budget.held) do
    if one[1] == id then
      mine[index], done, deadline = place, true, math.max(deadline, one[3])
    end
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
    if #budget.held >= most then
      local first = budget.held[1][3]
      for _, one in ipairs(budget.held) do
        first = math.min(first, one[3])
      end
      wait = math.max(wait, first - now)
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
  local place = mine[index]
  local held = place and budget.held[place][2] or 0
  if takes and done then
    held = units
    budget.held[#budget.held + 1] = { id, units, now + lasts, lasts }
    budget.grain = grain
  elseif verb == 'settle' and place then
    table.remove(budget.held, place)
    count_at(budget, now, units < 0 and held or math.min(units, LARGEST - total(budget)))
  elseif verb == 'renew' and place then
    budget.held[place][3], budget.held[place][4] = now + lasts, lasts
    deadline = now + lasts
  elseif looks then
    for _, one in ipairs(budget.held) do
      held = held + one[2]
    end
  end
  units_held = units_held .. write('<d', held)
end

local counted, changed = '', {}
for index, budget in ipairs(budgets) do
  local value = encoded(budget)
  counted = counted .. write('<d', total(budget))
  local is_empty = #budget.cells == 0 and #budget.held == 0
  if not looks and value ~= stored[index] and not (is_empty and not stored[index]) then
    changed[#changed + 1] = ARGV[6 + index]
    changed[#changed + 1] = value
  end
end
if #changed > 0 then
  call('HSET', KEYS[1], unpack(changed))
  call('PEXPIRE', KEYS[1], LIFE)
end
if fresh > 0 and #changed > 0 then
  drop_empty_fields(KEYS[1], now)
end
return { done and 1 or 0, now, deadline, refusing, longest, counted, units_held }
