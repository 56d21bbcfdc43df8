-- Part of sliding_window.lua: take the quota leases out of the cells, those that are settled or ended too
-- long ago out of the leases, and keep the others. The specification is current() of
-- lockgate/core/quota_leases.py.
--
-- Sets late, the instants with units that count from now on, in ascending order; nil if there are none.
-- Sets leases, holders, out, first_end, longest, flag, life and is_changed.
local LONGEST = 2000000
local ended, left, from = {}, {}, 1
for index = 1, number do
  from = from + read('<d', kept, HEADS + HEAD * index - 8)
end
local stored = cut(cells, from)
cells = cut(cells, 1, from - 1)
if asked then
  local at = 25
  while at < #asked do
    local name, size = read('<c8d', asked, at)
    ended[name] = cut(asked, at + 16, at + 15 + size)
    at = at + 16 + size
  end
end
late = {}
for place = 1, #stored, LEASE do
  local name, units, deadline, span = read('<c8ddd', stored, place)
  local used, is_past = ended[name], deadline <= now
  if is_past then
    late[#late + 1] = units > 0 and { deadline, units } or nil
    units = 0
  elseif used and units > 0 then
    for at = 1, #used, 16 do
      local used_at, used_units = read('<dd', used, at)
      late[#late + 1] = { math.min(used_at, now), used_units }
    end
  end
  if not used and deadline + LONGEST > now then
    deadline = math.min(deadline, now + span) -- No lease outlasts its span (W11).
    left[#left + 1] = write('<c8ddd', name, units, deadline, span)
    if units > 0 then
      holders, out, first_end = holders + 1, out + units, math.min(first_end, deadline)
    end
    longest = math.max(longest, units > 0 and span or LONGEST)
  end
end
leases = table.concat(left)
is_changed = leases ~= stored
if leases == '' then
  flag = 0
else
  life = life + math.ceil(longest / 1000)
end
if late[2] then
  table.sort(late, function(one, other)
    return one[1] < other[1]
  end)
elseif not late[1] then
  late = nil
end
