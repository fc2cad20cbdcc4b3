#!/bin/sh
# A SessionStart hook of Claude Code: registers the session for the issue after which the branch is named.
# How to install it: README.md beside this file.
branch=$(git symbolic-ref --quiet --short HEAD) || exit 0
issue=$(printf '%s\n' "/$branch" | sed -n 's|.*/issue-\([0-9][0-9]*\).*|\1|p')
[ -n "$issue" ] && [ -n "$CLAUDE_CODE_SESSION_ID" ] || exit 0
# Claude Code adds to the conversation what this prints. A failure stops nobody's session.
the-loop sessions register "$issue" --harness claude 2>&1
exit 0
