-- The budgets of calendar quotas, for hold.lua, of which these are functions.

-- Return the first instants of a window's periods; nil: it slides.
function periods_of(index, span)
  local periods = ARGV[5 + number + index]
  if not periods or periods == '' then
    return nil
  end
  local begins = {}
  for place = 1, #periods, 8 do
    begins[#begins + 1] = (read('<d', periods, place))
  end
  -- The next period has to be known as well, and when it ends.
  local is_known = begins[1] <= math.max(0, now - span - DAY) and now < begins[#begins - 1]
  return begins, is_known
end

-- Return the first instant of the period of an instant, of the next, and the end of that.
function period_of(begins, at)
  local place = #begins
  while begins[place] > at do
    place = place - 1
  end
  return begins[place], begins[place + 1], begins[place + 2]
end

-- Return the cells of a calendar quota as a list, oldest first.
local function listed_cells(budget)
  local list = {}
  for place = 1, #budget.older, CELL do
    list[#list + 1] = { read('<dd', budget.older, place) }
  end
  if budget.used > 0 then
    list[#list + 1] = { budget.last, budget.count }
  end
  return list
end

local function set_listed(budget, list)
  set_cells(budget, 0, 0, 0, 0, 0, '')
  for _, one in ipairs(list) do
    set_cells(budget, counted(one[1], one[2], 0, cells_of(budget)))
  end
end

-- Count units at the first instant of a period.
function count_in(budget, index, at, units)
  if units == 0 then
    return
  end
  local list, place = listed_cells(budget), 1
  while list[place] and list[place][1] < at do
    place = place + 1
  end
  if not list[place] or list[place][1] > at then
    table.insert(list, place, { at, 0 })
  end
  local before = list[place][2]
  list[place][2] = math.min(LARGEST, before + units)
  counts = counts .. write('<dddd', index - 1, at, before, list[place][2])
  set_listed(budget, list)
end

function used_in(budget, begins, ends)
  local used = 0
  for _, one in ipairs(listed_cells(budget)) do
    if one[1] >= begins and one[1] < ends then
      used = used + one[2]
    end
  end
  return used
end

-- Make the budget of a calendar quota what it is now. Cells in the future stay.
function bring_into_period(budget, index, span, begins)
  local edge, kept = math.max(0, now - span - DAY), {}
  local oldest = period_of(begins, edge)
  for _, one in ipairs(listed_cells(budget)) do
    if one[1] >= oldest then
      kept[#kept + 1] = one
    end
  end
  set_listed(budget, kept)
  for _, one in ipairs(end_holds(budget)) do
    if one[1] > edge then
      count_in(budget, index, (period_of(begins, one[1])), one[2])
    end
  end
end

-- Return the microseconds after which units fit a calendar quota, 0 if they fit now.
function wait_for_period(budget, begins, limit, units)
  if limit == 0 or total_of(budget, begins) + units <= limit then -- 0: the quota is soft.
    return 0
  end
  local _, ends, next_ends = period_of(begins, now)
  local following = used_in(budget, ends, next_ends) + units
  for _, one in ipairs(listed(budget.held)) do
    if one[1] >= ends then
      following = following + one[2]
    end
  end
  return (units <= limit and following > limit and next_ends or ends) - now
end
