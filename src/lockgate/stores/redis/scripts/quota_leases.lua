-- Quota leases, beside the windows of sliding_window.lua, of which these are functions. The specification is
-- lockgate/core/quota_leases.py.
--
-- A list of late units: instants with the units that count from now on, in ascending order.
--
-- A local of the script that a function reads costs more than a constant or an argument of its own.

-- Take the leases of a string that are settled or ended too long ago out of it. Returns the others; late
-- units or nil; of the leases that are out their number, units and first deadline; and the microseconds for
-- which one of the others stays at most.
function current_leases(stored, asked, now)
  local LONGEST, LEASE = 2000000, 32 -- Microseconds for which a lease that ended unsettled stays; bytes.
  local read, write, cut, min, max = read, write, cut, math.min, math.max
  local ended, left, late = {}, {}, {}
  local holders, out, first_end, longest = 0, 0, 2 ^ 60, 0
  local at = asked and 25 or 1
  while asked and at < #asked do
    local name, size = read('<c8d', asked, at)
    ended[name] = cut(asked, at + 16, at + 15 + size)
    at = at + 16 + size
  end
  for place = 1, #stored, LEASE do
    local name, units, deadline, span = read('<c8ddd', stored, place)
    local used, is_past = ended[name], deadline <= now
    if is_past then
      late[#late + 1] = units > 0 and { deadline, units } or nil
      units = 0
    elseif used and units > 0 then
      for place = 1, #used, 16 do
        local used_at, used_units = read('<dd', used, place)
        late[#late + 1] = { min(used_at, now), used_units }
      end
    end
    if not used and deadline + LONGEST > now then
      deadline = min(deadline, now + span) -- No lease outlasts its span (W11).
      left[#left + 1] = write('<c8ddd', name, units, deadline, span)
      if units > 0 then
        holders, out, first_end = holders + 1, out + units, min(first_end, deadline)
      end
      longest = max(longest, units > 0 and span or LONGEST)
    end
  end
  if late[2] then
    table.sort(late, function(one, other)
      return one[1] < other[1]
    end)
  end
  return table.concat(left), late[1] and late, holders, out, first_end, longest
end

-- Count late units in a window, none of whose cells is in the future. Takes and returns the units used,
-- the first hit of the newest cell, the last one and its count, and the older cells; nothing if a count
-- takes 7 bytes in its cell, and cells are narrower. The specification is count_at() of
-- lockgate/core/sliding_window.py.
local function counted(at, units, grain, cell, size, used, first, own, count, list)
  local AGE, NARROW, FULL = 2 ^ 40, 2 ^ 24, 63
  if used == 0 then
    return units, at, at, units, ''
  end
  used = used + units
  if at < own then -- The units join the next newer cell.
    local joined
    for place = #list - size + 1, 1, -size do
      local instant = read(cell, list, place)
      if own - (own - instant) % AGE < at then
        break
      end
      joined = place
    end
    if not joined then
      return used, first, own, count + units, list
    end
    local instant, many = read(cell, list, joined)
    many = many + units
    if many < NARROW or size > 8 then
      list = cut(list, 1, joined - 1) .. write(cell, instant, many) .. cut(list, joined + size)
      return used, first, own, count, list
    end
  elseif (at - first < grain and #list >= FULL * size) or own == at then
    return used, first, at, count + units, list
  elseif count < NARROW or size > 8 then
    return used, at, at, units, list .. write(cell, own % AGE, count)
  end
end

-- Count late units in all windows. Takes and returns the state, its cells, the last hit and the total; nothing
-- if cells have to be wider first.
function with_late(late, kept, cells, cell, size, last, total, plan, number, now)
  local AGE, EXACT, TAG, IDS, HEADS, HEAD = 2 ^ 40, 2 ^ 53, 26, 52, 260, 40
  local read, write, cut, min, max = read, write, cut, math.min, math.max
  local lists, counts, most, newest, from = {}, {}, 0, last, 1
  for index = 1, number do
    local span, _, grain = read('<ddd', plan, 24 * index - 23)
    local base, oldest, first, start, length = read('<i8dddd', kept, HEADS + HEAD * (index - 1))
    local used, count, own, edge = total - base, total - start, last, now - span
    local till, place = from + length, from
    if oldest <= edge then
      place, used = pruned(cells, from, till, cell, size, last, edge, used)
    end
    local list = cut(cells, place, till - 1)
    from = till
    if used == 0 then
      own, list, first, count = 0, '', 0, 0
    end
    for _, one in ipairs(late) do
      local at, units = one[1], min(one[2], EXACT - 1 - used)
      if units > 0 and at > edge then
        used, first, own, count, list =
          counted(at, units, grain, cell, size, used, first, own, count, list)
        if not used then
          return nil
        end
      end
    end
    lists[index], counts[index] = list, { used, first, count, own }
    most, newest = max(most, used), max(newest, own)
  end
  local heads = ''
  for index, list in ipairs(lists) do
    local used, first, count, own = unpack(counts[index])
    local oldest = used > 0 and newest or 0
    if used > 0 and own < newest then
      -- No more units fit this window: its newest cell stays as it is.
      list = list .. write(cell, own % AGE, count)
      first, count = 0, 0
    end
    if list ~= '' then
      oldest = newest - (newest - read(cell, list)) % AGE
    end
    heads = heads .. write('<i8dddd', most - used, oldest, first, most - count, #list)
    lists[index] = list
  end
  kept = cut(kept, 1, TAG + 1) .. write('<di8d', newest, most, 0) .. cut(kept, IDS, HEADS - 1) .. heads
  return kept, table.concat(lists), newest, most
end

-- Return the units of a lease to grant with a charge, beside holders with units that are out; nil: none.
function granted_units(units, plan, number, heads, total, leases, holders, out)
  local SHARE, LEAST, LEASES_AT_MOST = 50, 3, 64
  local LEASE, HEAD = 32, 40
  if #leases / LEASE >= LEASES_AT_MOST then
    return nil
  end
  holders = holders + 1
  for index = 1, number do
    local _, limit = read('<dd', plan, 24 * index - 23)
    if limit < math.huge then
      -- The remainder of math.fmod is exact, that of % is not beyond 2^52.
      local left = limit - out - (total - read('<i8', heads, HEAD * (index - 1) + 1))
      units = math.min(
        units,
        (left - math.fmod(left, holders)) / holders,
        (limit - math.fmod(limit, SHARE)) / SHARE - out
      )
    end
  end
  return units >= LEAST and units or nil
end
