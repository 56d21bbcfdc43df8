-- Older cells of a window that are packed into one string, each its last hit and its count, as doubles.
-- Takes from the script that includes it: now, read and write.

-- include: join_cells.lua

local CELL = 16
local FULL_CELLS, EXACT_CELLS = 63 * CELL, 64

-- Return the older cells after the clock has stepped back, the units that lie in the future and the
-- oldest hit: these become one cell that ends now (W11).
local function moved_back(older, span, grain, oldest)
  local list, future = {}, 0
  for place = 1, #older, CELL do
    local instant, units = read('<dd', older, place)
    if instant >= now then
      future = future + units
    else
      list[#list + 1] = { instant, units }
    end
  end
  if grain > 0 and #list > EXACT_CELLS + math.floor(span / grain) then
    list = join_cells(list)
    oldest = list[1][1]
  end
  for place, one in ipairs(list) do
    list[place] = write('<dd', one[1], one[2])
  end
  return table.concat(list), future, math.min(oldest, now)
end
