-- The fields of an organization: windows of named limits, budgets of holds and slots. Each is in a hash.
--
-- The cells of a window are six values: the units used; the oldest hit; the first and the last hit of the
-- newest cell, and its count; and the older cells in one string, oldest first, each its last hit and its
-- count. All numbers are doubles, which hold whole numbers up to 2^53 exactly. The specification is
-- lockgate/core/sliding_window.py.
--
-- Takes from the script that includes it: now, call, read, write and cut.

-- A local of the script that a function reads costs more than a constant of its own.

local FIELDS_AT_MOST, LARGEST, CELL = 10000, 2 ^ 53 - 1, 16
local DAY, LIFE = 86400000000, 172800000 -- In microseconds; two days, in milliseconds.

-- Write alternating fields and values, and keep the hash for some milliseconds at least: another field may
-- need it longer. The slack spares most calls the write.
local function put_fields(hash, changed, life)
  local SLACK = 3600000 -- An hour.
  if not changed[1] then
    return
  end
  call('HSET', hash, unpack(changed))
  if call('PTTL', hash) < life then
    call('PEXPIRE', hash, string.format('%.0f', life + SLACK))
  end
end

-- Drop fields that have been empty for a day, of a few that Redis draws: for a new field.
local function drop_empty_fields(hash)
  local SWEPT, DAY = 4, 86400000000
  local drawn = call('HRANDFIELD', hash, SWEPT, 'WITHVALUES')
  for place = 1, #drawn, 2 do
    local span = tonumber(string.match(drawn[place], '^%S+ (%d+)')) * 1000000
    if read('<d', drawn[place + 1], 25) <= now - span - DAY then
      call('HDEL', hash, drawn[place])
    end
  end
end

-- Return the cells after the clock has stepped back: those in the future become one that ends now (W11).
local function moved_back(span, grain, used, oldest, first, _, count, older)
  local CELL, EXACT_CELLS, list = 16, 64, {}
  for place = 1, #older, CELL do
    local instant, units = read('<dd', older, place)
    if instant >= now then
      count = count + units
    else
      list[#list + 1] = { instant, units }
    end
  end
  -- include: join_cells.lua
  if grain > 0 and #list > EXACT_CELLS + math.floor(span / grain) then
    list = join_cells(list)
    oldest = list[1][1]
  end
  for place, one in ipairs(list) do
    list[place] = write('<dd', one[1], one[2])
  end
  return used, math.min(oldest, now), math.min(first, now), now, count, table.concat(list)
end

-- Return the cells that are later than edge.
local function pruned(edge, used, oldest, first, last, count, older)
  if last <= edge or used == 0 then
    return 0, 0, 0, 0, 0, ''
  elseif oldest > edge then
    return used, oldest, first, last, count, older
  end
  local read, CELL = read, 16
  for place = 1, #older, CELL do
    local instant, units = read('<dd', older, place)
    if instant > edge then
      return used, instant, first, last, count, cut(older, place)
    end
    used = used - units
  end
  return used, last, first, last, count, ''
end

-- Return the cells with more units at an instant, which is not after now.
local function counted(at, units, grain, used, oldest, first, last, count, older)
  local CELL, FULL_CELLS = 16, 63 * 16
  if units == 0 then
    return used, oldest, first, last, count, older
  elseif used == 0 then
    return units, at, at, at, units, ''
  end
  used = used + units
  if at < last then
    for place = 1, #older, CELL do
      local instant, many = read('<dd', older, place)
      if instant >= at then
        local joined = write('<dd', instant, many + units)
        older = cut(older, 1, place - 1) .. joined .. cut(older, place + CELL)
        return used, oldest, first, last, count, older
      end
    end
    return used, oldest, first, last, count + units, older
  elseif (#older >= FULL_CELLS and at - first < grain) or at == last then
    return used, older == '' and at or oldest, first, at, count + units, older
  end
  return used, oldest, at, at, units, older .. write('<dd', last, count)
end

-- Return the instant of the cell with which so many units have left, and how many of them are in no cell.
local function last_of(units, last, count, older)
  local CELL = 16
  for place = 1, #older, CELL do
    local instant, many = read('<dd', older, place)
    units = units - many
    if units <= 0 then
      return instant, 0
    end
  end
  return last, math.max(0, units - count)
end
