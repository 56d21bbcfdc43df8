-- Part of sliding_window.lua: count the units of late in all windows, none of which has a cell in the
-- future. The specification is count_at() of lockgate/core/sliding_window.py.
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
    local at, units = one[1], math.min(one[2], EXACT - 1 - used)
    if units == 0 or at <= edge then
      -- Nothing to count, or it has left the window.
    elseif used == 0 then
      used, first, own, count = units, at, at, units
    else
      used = used + units
      if at < own then
        -- The units join the next newer cell.
        local joined
        for place = #list - size + 1, 1, -size do
          local instant = read(cell, list, place)
          if own - (own - instant) % AGE < at then
            break
          end
          joined = place
        end
        if joined then
          local instant, many = read(cell, list, joined)
          many = many + units
          if many >= NARROW and size == 8 then
            wide, rewrites = true, true
            break
          end
          list = cut(list, 1, joined - 1) .. write(cell, instant, many) .. cut(list, joined + size)
        else
          count = count + units
        end
      elseif (at - first < grain and #list >= FULL * size) or own == at then
        own, count = at, count + units
      else
        if count >= NARROW and size == 8 then
          wide, rewrites = true, true
          break
        end
        list = list .. write(cell, own % AGE, count)
        first, own, count = at, at, units
      end
    end
  end
  if rewrites then
    break
  end
  lists[index], counts[index] = list, { used, first, count, own }
  most, newest = math.max(most, used), math.max(newest, own)
end
if not rewrites then
  heads = ''
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
  last, total, late = newest, most, nil
  kept = cut(kept, 1, TAG + 1) .. write('<di8d', last, total, 0) .. cut(kept, IDS, HEADS - 1) .. heads
  cells, rewrites = table.concat(lists), total + cost >= EXACT
end
