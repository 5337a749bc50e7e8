package numbers

import "bytes"

// A Stream reads server-sent events, and gives the data of each to a Scanner as a document.
type Stream struct {
	*Scanner
	Events int64 // that had data, but not the end mark [DONE]
	Since  int64 // those after the last one with a number

	hits int64 // of the Scanner, at the end of that one

	mark   int                  // bytes of a byte order mark that were read; beyond it: all, or there is none
	line   [len(dataField)]byte // the beginning of a line
	length int                  // of what line has
	cr     bool                 // the last byte was a carriage return
	inData bool                 // the rest of the line is data
	skips  bool                 // the rest of the line is another field
	begun  bool                 // the event has data
	done   bool                 // its data is the end mark
}

const dataField = "data:"

// byteOrderMark may begin a stream, and means nothing.
const byteOrderMark = "\ufeff"

// Write reads the next piece. It never fails.
func (s *Stream) Write(p []byte) (int, error) {
	rest := p
	for s.mark < len(byteOrderMark) && len(rest) > 0 {
		if rest[0] != byteOrderMark[s.mark] {
			s.part([]byte(byteOrderMark[:s.mark]))
			s.mark = len(byteOrderMark)
			break
		}
		rest, s.mark = rest[1:], s.mark+1
	}
	for len(rest) > 0 {
		if s.cr && rest[0] == '\n' { // CR LF is one end of a line
			rest, s.cr = rest[1:], false
			continue
		}
		s.cr = false
		n := bytes.IndexAny(rest, "\r\n")
		if n < 0 {
			s.part(rest)
			break
		}
		s.part(rest[:n])
		s.endLine()
		s.cr = rest[n] == '\r'
		rest = rest[n+1:]
	}
	return len(p), nil
}

// part reads a part of a line.
func (s *Stream) part(p []byte) {
	for !s.inData && !s.skips && len(p) > 0 {
		s.line[s.length] = p[0]
		s.length++
		p = p[1:]
		switch {
		case s.line[s.length-1] != dataField[s.length-1]:
			s.skips = true
		case s.length == len(dataField):
			if s.inData = true; !s.begun {
				s.Next()
			}
		}
	}
	if !s.inData || len(p) == 0 {
		return
	}
	if !s.begun {
		if p = bytes.TrimLeft(p, " "); len(p) == 0 {
			return
		}
		s.begun, s.done = true, p[0] == '['
	}
	if !s.done {
		_, _ = s.Scanner.Write(p)
	}
}

// endLine reads the end of a line. An empty one ends the event.
func (s *Stream) endLine() {
	if s.inData && s.begun && !s.done {
		_, _ = s.Scanner.Write([]byte{'\n'})
	}
	if s.length == 0 {
		s.endEvent()
	}
	s.length, s.inData, s.skips = 0, false, false
}

// endEvent counts the event. A number at the end of a stream that breaks off may be the beginning of a
// greater one, and is left out: the ends of lines end all others.
func (s *Stream) endEvent() {
	if s.begun && !s.done {
		s.Events++
		if s.Since++; s.Scanner.hits != s.hits {
			s.Since, s.hits = 0, s.Scanner.hits
		}
	}
	s.begun, s.done = false, false
}

// End reads the end of the stream.
func (s *Stream) End() { s.endEvent() }
