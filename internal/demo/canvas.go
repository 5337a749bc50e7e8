package demo

import (
	"fmt"
	"strings"
)

// columns and rows are the size of the picture. Every terminal has at least this size.
const columns, rows = 80, 24

// A style is a color of the picture, named after its meaning and not after its look. Its value is
// the escape sequence.
type style string

const (
	plain style = ""
	soft  style = "\x1b[2m"
	bold  style = "\x1b[1m"
	water style = "\x1b[36m"
	duck  style = "\x1b[37m"
	you   style = "\x1b[1;33m"
	good  style = "\x1b[32m"
	bad   style = "\x1b[1;31m"
)

// verdict returns the color of a fact.
func verdict(ok bool) style {
	if ok {
		return good
	}
	return bad
}

// A canvas is a picture of characters, each one column wide.
type canvas struct {
	cell [rows][columns]rune
	tint [rows][columns]style
}

// put writes parts one after another from column x of row y on, and cuts off what does not fit. A
// style is the style of the parts after it. It returns the column after the last part.
func (c *canvas) put(x, y int, parts ...any) int {
	tint := plain
	for _, part := range parts {
		if s, ok := part.(style); ok {
			tint = s
			continue
		}
		for _, r := range fmt.Sprint(part) {
			if x >= 0 && x < columns && y >= 0 && y < rows {
				c.cell[y][x], c.tint[y][x] = r, tint
			}
			x++
		}
	}
	return x
}

// keys draws below the picture what each key does.
func (c *canvas) keys(keys [][2]string) {
	x := 1
	for _, k := range keys {
		x = c.put(x, 22, bold, k[0], soft, " "+k[1]) + 3
	}
}

// line returns row y, at most width columns of it, without the blanks at its end.
func (c *canvas) line(y, width int, color bool) string {
	end := min(columns, width)
	for end > 0 && (c.cell[y][end-1] == 0 || c.cell[y][end-1] == ' ') {
		end--
	}
	var b strings.Builder
	now := plain
	for x := range end {
		r, s := c.cell[y][x], c.tint[y][x]
		if r == 0 {
			r, s = ' ', plain
		}
		if color && s != now {
			b.WriteString("\x1b[0m" + string(s))
			now = s
		}
		b.WriteRune(r)
	}
	if now != plain {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// frame returns the picture as bytes for a terminal of this size. The frame starts at the upper
// left corner and overwrites the previous one, so that nothing flickers.
func (c *canvas) frame(width, height int, color bool) string {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for y := range min(rows, height) {
		if y > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(c.line(y, width, color) + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// A part is a section of a bar.
type part struct {
	n    int
	tint style
	mark string
}

// bar draws parts of a total in width columns. Each part that is not empty has at least one mark.
func (c *canvas) bar(x, y, of, width int, parts ...part) int {
	sum, col := 0, 0
	for _, p := range parts {
		sum += p.n
		for end := (sum*width + of - 1) / max(1, of); col < min(end, width); col++ {
			x = c.put(x, y, p.tint, p.mark)
		}
	}
	for ; col < width; col++ {
		x = c.put(x, y, soft, "·")
	}
	return x
}

// spark returns a row of bars.
func spark(values []int) string {
	most := 1
	for _, v := range values {
		most = max(most, v)
	}
	marks := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range values {
		b.WriteRune(marks[v*(len(marks)-1)/most])
	}
	return b.String()
}

// wrapped breaks text into lines between words.
func wrapped(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
