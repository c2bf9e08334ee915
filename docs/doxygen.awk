# Shows Doxygen the headers' comments, which are plain text: one that begins a line belongs to what follows it, one that
# ends a line to what stands before it, the first to the file.  Functions that share a comment each get it.  Line numbers
# stay as they are.

NR == 1 { head = 1 }

# past its first paragraph the file's comment has formulas and tables, whose lines must stay
head && /^ \*$/ && !verbatim { print " * @verbatim"; verbatim = 1; next }
verbatim { sub(/^ \* ?/, "") }

!verbatim && /^ *\/?\*/ { gsub(/</, "\\<") }
head && /\*\/$/ {
    sub(/ *\*\/$/, (verbatim ? " @endverbatim" : "") " @file */")
    head = verbatim = 0
}

!sub(/^ *\/\* /, "/** ") { sub(/\/\* /, "/**< ") }

/^TUTTI_API/ && match($0, /tutti_[a-z0-9_]+\(/) {
    if (before ~ /\*\/$/)
        documented = substr($0, RSTART, RLENGTH - 1)
    else if (documented && before ~ /\);$/)
        $0 = "/** @copydoc " documented " */ " $0
}

{ print; before = $0 }
