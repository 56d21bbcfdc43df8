-- Promises, beside the windows of sliding_window.lua, of which these are functions. The specification is
-- lockgate/core/promises.py.
--
-- A promise is packed as its units, deadline and span, then its holder after the length of that. Unpacked it is a list
-- of its start, units, holder and span. Promises are in the order of their starts.
--
-- A local of the script that a function reads costs more than a constant or an argument of its own.

-- Unpack the promises that last. A clock that stepped back moves none further ahead than it was at first.
function lasting(packed, now)
  local GRACE, HEAD = 1500000, 26 -- Microseconds for which units are kept; bytes before the holder.
  local read, list, at, is_moved = struct.unpack, {}, 1, false
  while at < #packed do
    local units, deadline, span, size = read('<dddI2', packed, at)
    local holder = string.sub(packed, at + HEAD, at + HEAD + size - 1)
    at = at + HEAD + size
    if deadline > now then
      if deadline > now + span then
        deadline, is_moved = now + span, true
      end
      list[#list + 1] = { deadline - GRACE, units, holder, span, #list }
    end
  end
  if is_moved then
    table.sort(list, function(one, other)
      return one[1] < other[1] or (one[1] == other[1] and one[5] < other[5])
    end)
  end
  return list
end

-- Pack promises as they follow the cells: after the number of their bytes; nothing if there are none.
function packed_promises(list)
  local GRACE, parts = 1500000, {}
  for place, one in ipairs(list) do
    parts[place] = struct.pack('<dddI2', one[2], one[1] + GRACE, one[4], #one[3]) .. one[3]
  end
  local packed = table.concat(parts)
  return packed == '' and '' or struct.pack('<d', #packed) .. packed
end

-- Take the promise of a holder that has started out of a list: that of the fewest units that are enough.
function take_due(list, holder, now, cost)
  local found
  for place, one in ipairs(list) do
    if one[1] > now then
      break
    end
    if one[3] == holder and one[2] >= cost and not (found and one[2] >= list[found][2]) then
      found = place
    end
  end
  if found then
    table.remove(list, found)
  end
end

-- Return the units that fit at each of some instants, a second apart from the first one on, beside promises; and the
-- index of the window with the least at the first. With lowered return instead the plan with what its limits leave at
-- the first instant.
function room_at(
  first, count, list, out, kept, cells, cell, size, last, total, plan, number, now, lowered
)
  local AGE, FULL, HEADS, HEAD, SECOND, PLENTY = 2 ^ 40, 63, 260, 40, 1000000, 2 ^ 60
  local read, least, tightest, from, starts = struct.unpack, {}, 0, 1, #list
  local latest = first + (count - 1) * SECOND
  if starts > 0 and list[starts][1] > latest then
    latest = list[starts][1]
  end
  for place = 1, count do
    least[place] = PLENTY
  end
  for index = 1, number do
    local span, limit, grain = read('<ddd', plan, 24 * index - 23)
    local base, _, newest, start, length = read('<i8dddd', kept, HEADS + HEAD * (index - 1))
    local place, till, edge = from, from + length, now - span
    local used, ends, units, cells_left = total - base, {}, {}, 0
    from = till
    if limit < math.huge then
      if last <= edge or used == 0 then
        used, place = 0, till
      else
        local instant, many
        while place < till do
          instant, many = read(cell, cells, place)
          instant = last - (last - instant) % AGE
          if instant > edge then
            break
          end
          used, place = used - many, place + size
        end
        local is_full = till - place >= FULL * size
        while place < till and instant + span <= latest do
          cells_left, place = cells_left + 1, place + size
          ends[cells_left], units[cells_left] = instant + span, many
          if place < till then
            instant, many = read(cell, cells, place)
            instant = last - (last - instant) % AGE
          end
        end
        if place == till then -- Later hits may join the newest cell, if it is shared.
          local ended = is_full and math.max(last, newest + grain - 1) or last
          ends[cells_left + 1], units[cells_left + 1] = ended + span, total - start
        end
      end
      local free, left, sum, ended = math.max(0, limit - out) - used, {}, 0, 1
      local now_free = free
      for place = 1, starts do
        while ends[ended] and ends[ended] <= list[place][1] do
          free, ended = free + units[ended], ended + 1
        end
        sum = sum + list[place][2]
        left[place] = free - sum
      end
      for place = starts - 1, 1, -1 do
        left[place] = math.min(left[place], left[place + 1])
      end
      local begun, at = 0, first
      free, sum, ended = now_free, 0, 1
      for place = 1, count do
        while ends[ended] and ends[ended] <= at do
          free, ended = free + units[ended], ended + 1
        end
        while begun < starts and list[begun + 1][1] <= at do
          begun = begun + 1
          sum = sum + list[begun][2]
        end
        local room = math.min(free - sum, left[begun + 1] or PLENTY)
        if lowered then
          local limits = struct.pack('<d', math.max(0, used + room) + out)
          plan = string.sub(plan, 1, 24 * index - 16) .. limits .. string.sub(plan, 24 * index - 7)
        end
        if room < least[place] then
          least[place], tightest = room, place == 1 and index - 1 or tightest
        end
        at = at + SECOND
      end
    end
  end
  if lowered then
    return plan
  end
  return least, tightest
end

-- Return the wait of a refusal by the window of an index, the instant until which it stays, and whether the units are
-- now promised to a holder.
function promised(
  list, holder, wait, reset, index, out, kept, cells, cell, size, last, total, plan, number, now, cost
)
  local GRACE, AT_MOST, FURTHEST, SECOND = 1500000, 256, 120, 1000000
  local read, limit = struct.unpack, math.huge
  for index = 1, number do
    limit = math.min(limit, (read('<d', plan, 24 * index - 15)))
  end
  limit = math.max(0, limit - out)
  if cost <= limit and wait <= FURTHEST * SECOND then
    local first = math.max(1, math.ceil(wait / SECOND))
    local span = math.ceil(read('<d', plan, 24 * index + 1) / SECOND)
    local most, seconds = math.max(first, math.min(FURTHEST, span)), nil
    local rooms = room_at(
      now + first * SECOND, most - first + 1,
      list, out, kept, cells, cell, size, last, total, plan, number, now
    )
    for place, units in ipairs(rooms) do
      if units >= cost then
        seconds = first + place - 1
        break
      end
    end
    wait = (seconds or most) * SECOND
    if seconds and holder then
      local left, units, place = AT_MOST - #list, limit - cost, 1
      for _, one in ipairs(list) do
        local is_own = one[3] == holder
        left = left - (is_own and 1 or 0)
        units = units - one[2] - (is_own and one[2] or 0)
        place = place + (one[1] <= now + wait and 1 or 0)
      end
      if left > 0 and units >= 0 then
        table.insert(list, place, { now + wait, cost, holder, wait + GRACE })
        return wait, reset, true
      end
    end
  end
  for _, one in ipairs(list) do
    if one[3] == holder and one[1] > now then
      if not (now < reset and reset <= one[1]) then
        reset = one[1]
      end
      break
    end
  end
  return wait, reset, false
end
