-- Named limits. The specification is lockgate/core/limit_hits.py; this restates it for Redis.
--
-- A hash of the organization has the cells of each window under its field: the units used, the oldest
-- hit, the first and the last hit of the newest cell and its count; then the older cells, each its last
-- hit and its count. All are doubles, which hold whole numbers up to 2^53 exactly.
--
-- Takes from the script that includes it: limits, the name of the hash; at, the argument that has span,
-- limit and grain of each window, packed, behind which the fields follow; and the locals of request.lua.
--
-- The window of a calendar period has a negative grain, -1 less the first instant of the period, at which
-- all of its hits count. The process has named the period by its own clock. If it is not that of now,
-- the script ends before it has changed anything, and answers with the instant.
--
-- Leaves: barred, whether a named limit refuses; keep_all, to call once the request is charged or refused;
-- and told, the end of the answer.

-- Sets FIELDS_AT_MOST, LIFE, DAY, keep_for and drop_empty_fields.
-- include: limit_fields.lua

-- Sets CELL, FULL_CELLS and moved_back.
-- include: packed_cells.lua

local CELLS, LARGEST = 40, 2 ^ 53 - 1
local spans = ARGV[at]
local limited, kept_limits, changed_limits, is_moved = #spans / 24, {}, {}, false
local life, ANOTHER_PERIOD = LIFE, 4
local refusing, longest_wait, lacking, fresh, counts = -1, 0, -1, 0, ''
barred = false

local stored = call('HMGET', limits, unpack(ARGV, at + 1, at + limited))
for index = 1, limited do
  local span, limit, grain = read('<ddd', spans, 24 * index - 23)
  local used, oldest, first, last, count, older = 0, 0, 0, 0, 0, ''
  local moment = now
  if grain < 0 then
    moment = -1 - grain
    if now < moment or now >= moment + span then
      return write('<Bi8', ANOTHER_PERIOD, now)
    end
    life = math.max(life, math.ceil((moment + span + DAY - now) / 1000))
  end
  if stored[index] then
    used, oldest, first, last, count = read('<ddddd', stored[index])
    older = cut(stored[index], CELLS + 1)
  else
    fresh = fresh + 1
    if lacking < 0 then
      lacking = index - 1
    end
  end
  local steps_back = last > moment
  if steps_back then
    local future
    older, future, oldest = moved_back(older, span, grain, oldest)
    first, last, count, is_moved = math.min(first, now), now, count + future, true
  end
  if grain < 0 and used + cost > LARGEST then -- Its only cell; the limit is soft.
    used = math.max(0, LARGEST - cost)
    count = used
  end
  local edge = moment - span
  if last <= edge or used == 0 then
    used, oldest, first, last, count, older = 0, 0, 0, 0, 0, ''
  elseif oldest <= edge then
    local from = 1
    oldest = last
    for place = 1, #older, CELL do
      local instant, units = read('<dd', older, place)
      if instant > edge then
        oldest = instant
        break
      end
      used, from = used - units, place + CELL
    end
    older = cut(older, from)
  end
  kept_limits[index] = steps_back and write('<ddddd', used, oldest, first, last, count) .. older
  counts = counts .. write('<d', used)
  if used + cost > limit then
    local waits = moment + span - now
    if cost <= limit then
      local excess, until_then = used - (limit - cost), last
      for place = 1, #older, CELL do
        local instant, units = read('<dd', older, place)
        excess = excess - units
        if excess <= 0 then
          until_then = instant
          break
        end
      end
      waits = until_then + span - now
    end
    if waits > longest_wait then
      longest_wait, refusing = waits, index - 1
    end
  end
  if (#older >= FULL_CELLS and now - first < grain) or (last == moment and count > 0) then
    count = count + cost
  else
    if count > 0 then
      older = older .. write('<dd', last, count)
    end
    first, count = moment, cost
  end
  if older == '' then
    oldest = moment
  end
  changed_limits[index] = write('<ddddd', used + cost, oldest, first, moment, count) .. older
end
if fresh > 0 and call('HLEN', limits) + fresh > FIELDS_AT_MOST then
  barred = true
else
  lacking = -1
end
barred = barred or refusing >= 0

-- Write windows by their fields.
local function keep_limits(values)
  local pairs = {}
  for index = 1, limited do
    if values[index] then
      pairs[#pairs + 1] = ARGV[at + index]
      pairs[#pairs + 1] = values[index]
    end
  end
  if #pairs == 0 then
    return
  end
  call('HSET', limits, unpack(pairs))
  keep_for(limits, life)
end

-- Keep the state after a charge, or after a refusal, which changes it only if the clock has stepped back.
local function keep_all(is_charged)
  if is_charged or is_moved then
    keep_limits(is_charged and changed_limits or kept_limits)
  end
  if fresh > 0 then
    drop_empty_fields(limits, now)
  end
end

-- Return what admission_codec.py unpacks behind the reading: the index of the refusing window or -1,
-- its wait, the index of the first window for which there is no field left or -1, and the units used.
local function told(is_charged)
  if is_charged then
    counts = ''
    for index = 1, limited do
      counts = counts .. cut(changed_limits[index], 1, 8)
    end
  end
  return write('<bdb', refusing, longest_wait, lacking) .. counts
end
