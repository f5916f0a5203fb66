// Figures one steps through, and the values of charts. Pages read the same without this file.
