-- Return cells, each its last hit and its count, oldest first, with neighbours joined: half as many, of
-- which none ends sooner.
local function join_cells(cells)
  local joined = {}
  for place = 1, #cells, 2 do
    local one, two = cells[place], cells[place + 1]
    joined[#joined + 1] = two and { two[1], one[2] + two[2] } or one
  end
  return joined
end
