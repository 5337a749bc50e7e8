package demo

import "strings"

// columns and rows are the size of the picture. Every terminal has at least this size.
const columns, rows = 80, 24

// A style is a color of the picture, named after its meaning and not after its look.
type style byte

const (
	plain style = iota
	soft
	bold
	water
	duck
	you
	good
	bad
	styles
)

// code returns the escape sequence of the style.
func (s style) code() string {
	return [styles]string{
		plain: "", soft: "\x1b[2m", bold: "\x1b[1m", water: "\x1b[36m", duck: "\x1b[37m",
		you: "\x1b[1;33m", good: "\x1b[32m", bad: "\x1b[1;31m",
	}[s]
}

// A canvas is a picture of characters, each one column wide.
type canvas struct {
	cell [rows][columns]rune
	tint [rows][columns]style
}

// put writes text at column x of row y and cuts off what does not fit. It returns the column after
// the text.
func (c *canvas) put(x, y int, s style, text string) int {
	for _, r := range text {
		if x >= 0 && x < columns && y >= 0 && y < rows {
			c.cell[y][x], c.tint[y][x] = r, s
		}
		x++
	}
	return x
}

// keys draws in the last row what each key does.
func (c *canvas) keys(keys [][2]string) {
	x := 1
	for _, k := range keys {
		x = c.put(x, 22, bold, k[0])
		x = c.put(x+1, 22, soft, k[1]) + 3
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
			b.WriteString("\x1b[0m" + s.code())
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
