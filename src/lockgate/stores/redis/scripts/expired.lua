
if void <= now then
  return write('<Bi8', 3, now)
end
