-- Charge the windows of a plan unless a named limit refuses, and keep the state of both. Takes the locals
-- of request.lua and limits.lua; leaves those of sliding_window.lua. Ends the script with nil if the
-- request was sent before and may have been charged then (D33).

if barred then
  mark = '' -- The fast path would charge the plan.
end
-- include: sliding_window.lua
if not reading then
  return false
end
if repeated then
  refusing, lacking = -1, -1 -- It was admitted, by its own units.
else
  keep_all(charged)
  if barred then
    reading = write('B', LIMITED) .. cut(reading, 2)
  end
end
