-- What print needs beyond Markdown: columns that fit the page, names that break, numbers that do not.

local PAGE = 104 -- characters of the tables' font on a line
local BREAKS_AFTER = "[:<>,%(%)_/;&*%-]"
-- what the LaTeX template can set; any other character is printed as its code point
local PRINTABLE = {}
for _, code in utf8.codes("±×÷·²µ–−→≥≤Σ") do PRINTABLE[code] = true end

local function of_latex(text)
  local out = {}
  for _, code in utf8.codes(text) do
    local plain = code < 0x7f or (code >= 0xa0 and code <= 0xff) or PRINTABLE[code]
    out[#out + 1] = plain and utf8.char(code) or string.format("U+%04X", code)
  end
  return table.concat(out)
end

local SPECIAL = { ["\\"] = "\\textbackslash{}", ["~"] = "\\textasciitilde{}", ["^"] = "\\textasciicircum{}",
  ["<"] = "\\textless{}", [">"] = "\\textgreater{}", ["|"] = "\\textbar{}", ['"'] = "\\textquotedbl{}",
  ["'"] = "\\textquotesingle{}", ["`"] = "\\textasciigrave{}", ["-"] = "-{}" }

local function latex_code(text)
  local out = {}
  for _, code in utf8.codes(of_latex(text)) do
    local c = utf8.char(code)
    local set = SPECIAL[c] or (c:match("[#%$%%&_{}]") and "\\" .. c) or c
    out[#out + 1] = set .. (c:match(BREAKS_AFTER) and "\\allowbreak{}" or "")
  end
  return "\\texttt{" .. table.concat(out) .. "}"
end

-- long words without a space, names of runs above all, may break after punctuation
local function breakable(text)
  return #text > 24 and text:gsub(BREAKS_AFTER, "%0\u{200B}") or text
end

function Code(code)
  if FORMAT == "latex" then return pandoc.RawInline("latex", latex_code(code.text)) end
  code.text = code.text:gsub(BREAKS_AFTER, "%0\u{200B}")
  return code
end

function Str(str)
  if FORMAT ~= "latex" then return pandoc.Str(breakable(str.text)) end
  local out = pandoc.Inlines({})
  for piece in (breakable(of_latex(str.text)) .. "\u{200B}"):gmatch("(.-)\u{200B}") do
    if #out > 0 then out:insert(pandoc.RawInline("latex", "\\allowbreak{}")) end
    out:insert(pandoc.Str(piece))
  end
  return out
end

-- (the length of the longest part of a cell that must stay together, a word counting at most 24; that of the whole cell)
local function words_and_length(cell, unbroken)
  local text = pandoc.utils.stringify(cell.contents)
  local longest = 0
  for word in text:gmatch("%S+") do
    local length = utf8.len(word)
    longest = math.max(longest, length > 24 and 24 or length)
  end
  local length = utf8.len(text)
  return unbroken and length or longest, length
end

local function rows_of(tbl)
  local rows = pandoc.List({})
  rows:extend(tbl.head.rows)
  for _, body in ipairs(tbl.bodies) do rows:extend(body.body) end
  return rows
end

-- numbers stay on one line
local function unbroken(tbl)
  for _, body in ipairs(tbl.bodies) do
    for _, row in ipairs(body.body) do
      for i, cell in ipairs(row.cells) do
        if tbl.colspecs[i][1] == pandoc.AlignRight then
          cell.contents = cell.contents:walk({ Space = function() return pandoc.Str("\u{00A0}") end })
        end
      end
    end
  end
end

-- gives a table that is wider than a page its widths: each column what must stay together, and a share of the rest
local function fit(tbl)
  local least, full = {}, {}
  for number, row in ipairs(rows_of(tbl)) do
    for i, cell in ipairs(row.cells) do
      local whole = number > 1 and tbl.colspecs[i][1] == pandoc.AlignRight
      local shortest, length = words_and_length(cell, whole)
      least[i], full[i] = math.max(least[i] or 3, shortest), math.max(full[i] or 3, length)
    end
  end
  local sum_least, sum_full = 0, 0
  for i in ipairs(full) do sum_least, sum_full = sum_least + least[i] + 2, sum_full + full[i] + 2 end
  if sum_full <= PAGE then return end
  local spare, wanted = math.max(0, PAGE - sum_least), math.max(1, sum_full - sum_least)
  local total = math.max(PAGE, sum_least)
  for i in ipairs(full) do
    tbl.colspecs[i] = { tbl.colspecs[i][1], (least[i] + 2 + (full[i] - least[i]) * spare / wanted) / total }
  end
end

function Table(tbl)
  fit(tbl)
  unbroken(tbl)
  return tbl
end

return { { Table = Table }, { Code = Code, Str = Str } }
